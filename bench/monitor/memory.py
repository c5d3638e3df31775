#!/usr/bin/env python3
"""Measures the resident memory of the monitor beside a program with large libraries.

    bench/monitor/memory.py --warpscope target/release/warpscope --library /usr/lib/llvm-14/lib/libLLVM-14.so.1 ...
    bench/monitor/memory.py --warpscope target/release/warpscope -- python3 bench/programs/train_small.py

The first form maps the given libraries in a Python program that allocates memory of the simulated GPU; the second runs any
program. Prints the monitor's resident memory (VmRSS, and its peak VmHWM) without the program and beside it, in MiB, with the
monitor's default options, with allocation stacks only (--memleak), and without stacks. Requires root.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from processes import BenchError, Monitor  # noqa: E402

MODES = {"default": [], "--memleak": ["--memleak"], "--no-stacks": ["--no-stacks"]}
PROGRAM = """
import ctypes, sys, time
runtime = ctypes.CDLL(sys.argv[1])
for library in sys.argv[2:]:
    ctypes.CDLL(library)
address = ctypes.c_void_p()
def allocate():
    if runtime.cudaMalloc(ctypes.byref(address), 4096) != 0:
        sys.exit("cudaMalloc failed")
while True:
    allocate()
    time.sleep(0.01)
"""


def memory(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return {name: int(re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE).group(1)) / 1024 for name in ("VmRSS", "VmHWM")}


def figures(pid):
    return "  ".join(f"{name} {mebibytes:6.1f}" for name, mebibytes in memory(pid).items())


def measure(mode, options, command, environment):
    monitor = Monitor(options.warpscope, *MODES[mode])
    monitor.scrape()
    print(f"{mode:<12} idle    {figures(monitor.pid)}", flush=True)
    program = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            time.sleep(1)
            text = monitor.scrape()
            if program.poll() is not None:
                raise BenchError(f"the program ended too early, exit status {program.returncode}")
        live = sum(int(count) for count in re.findall(r"^warpscope_memory_live_allocations{.*} (\d+)$", text, re.MULTILINE))
        print(f"{mode:<12} beside  {figures(monitor.pid)}  ({live} live allocations)", flush=True)
    finally:
        program.kill()
        program.wait()
        monitor.stop()
        print(monitor.messages, end="", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description="Measure the resident memory of the monitor beside a large program.")
    parser.add_argument("--warpscope", required=True, type=lambda path: Path(path).resolve())
    parser.add_argument("--library", action="append", default=[], help="a library that the program maps; may be repeated")
    parser.add_argument("--seconds", type=int, default=20, help="when to measure, after the start of the program")
    parser.add_argument("--mode", action="append", choices=list(MODES))
    parser.add_argument("command", nargs="*", help="a program to run in place of the simulated one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="warpscope-memory-") as directory:
        command, environment = options.command, None
        if not command:
            subprocess.run([options.warpscope, "sim", "--libs", directory], check=True)
            runtime = sorted(Path(directory).glob("libcudart.so.*"))[-1]
            command = [sys.executable, "-c", PROGRAM, runtime, *options.library]
            environment = {"LD_LIBRARY_PATH": directory}
        for mode in options.mode or MODES:
            measure(mode, options, command, environment)


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/monitor: {error}")
