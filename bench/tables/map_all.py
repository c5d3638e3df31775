"""Maps the code of every shared library below a directory, prints `ready SECONDS`, and waits until its input ends.

    map_all.py DIRECTORY

Nothing is loaded or executed: a profiler only needs to see the mapping.
"""
import mmap
import os
import sys
import time

begin = time.monotonic()
kept = []
for directory, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(directory, name)
        if ".so" not in name or os.path.islink(path):
            continue
        with open(path, "rb") as file:
            if file.read(4) == b"\x7fELF":
                kept.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
print("ready %.3f" % (time.monotonic() - begin), flush=True)
sys.stdin.read()
