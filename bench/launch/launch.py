"""Enters the launch loop from Python: DEPTH Python frames above a ctypes call.

    launch.py LIBRARY LAUNCHES DEPTH PATHS each|many

`many`: one call makes all launches, so that the interpreter's own time does not count. `each`: one call per launch, from PATHS functions
in turn.
Prints `us_per_launch N`, like the program without Python.
"""
import ctypes
import sys
import time

WARM_UP = 2048

library = ctypes.CDLL(sys.argv[1])
library.launch_many.restype = ctypes.c_double
library.launch_many.argtypes = [ctypes.c_long]
library.launch_one.restype = None
library.launch_one.argtypes = [ctypes.c_long]


def many(launches):
    return library.launch_many(launches)


def make_paths(count):
    scope = {"launch_one": library.launch_one}
    exec("".join("def path_%d(number):\n    launch_one(number)\n" % path for path in range(count)), scope)
    return [scope["path_%d" % path] for path in range(count)]


def each(launches):
    launch_one = library.launch_one
    paths = make_paths(int(sys.argv[4])) if sys.argv[4] != "1" else [launch_one]
    begin = time.perf_counter()
    for number in range(1, launches + 1):
        paths[number * 7919 % len(paths)](number)
    # The number of a full queue: this call waits for the GPU.
    launch_one(512)
    return (time.perf_counter() - begin) * 1e6 / launches


def descend(depth, loop, launches):
    if depth > 1:
        return descend(depth - 1, loop, launches)
    return loop(launches)


def main(launches, depth, loop):
    descend(depth, loop, WARM_UP)
    print("us_per_launch %.4f" % descend(depth, loop, launches))


main(int(sys.argv[2]), int(sys.argv[3]), {"many": many, "each": each}[sys.argv[5]])
