#!/usr/bin/env python3
"""What tracing one call costs: untraced, with probes that do nothing, under `warpscope trace`, with --summary-only, and under
bpftrace doing the same.

    bench/trace/run.py --gpu --warpscope target/release/warpscope       the real libcuda; needs cc, root
    bench/trace/run.py --sim --warpscope target/release/warpscope       the simulated GPU's libcuda

All take turns, so that a machine that grows slow is slow for all. Medians are printed, and what each adds to a call. A
round whose tracer did not see every call is an error, not a fast round. Where bpftrace is not installed its rows are
left out.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FUNCTION = "cuDriverGetVersion"


class BenchError(Exception):
    """Something the user can act on."""


def call(command, env=None):
    command = [str(part) for part in command]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise BenchError(f"exit status {done.returncode}: {' '.join(command)}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def ns_per_call(output):
    found = re.search(r"^ns_per_call ([0-9.]+)$", output, re.MULTILINE)
    if not found:
        raise BenchError(f"the program printed no ns_per_call:\n{output}")
    return float(found.group(1))


class Bench:
    def __init__(self, arguments, directory):
        self.arguments = arguments
        self.directory = directory
        self.program = directory / "loop"
        call([os.environ.get("CC", "cc"), "-O2", "-o", self.program, HERE / "loop.c", "-ldl", "-lpthread"])
        self.environment = dict(os.environ)
        if arguments.sim:
            libraries = directory / "sim"
            call([arguments.warpscope, "sim", "--libs", libraries])
            self.environment["LD_LIBRARY_PATH"] = str(libraries)
        self.library = self.find_library()
        self.loop = [self.program, arguments.calls, arguments.threads]
        self.empty = directory / "empty"
        call([os.environ.get("CC", "cc"), "-O2", "-o", self.empty, HERE / "empty.c", "-ldl"])
        self.modes = {"untraced": self.untraced, "empty probes": self.empty_probes}
        self.modes.update({"trace": self.trace, "trace --summary-only": self.summary})
        if shutil.which("bpftrace"):
            self.modes["bpftrace, a line a call"] = self.bpftrace_lines
            self.modes["bpftrace, sums"] = self.bpftrace_sums

    def find_library(self):
        """libcuda as the program finds it."""
        text = "import ctypes; ctypes.CDLL('libcuda.so.1'); print(open('/proc/self/maps').read())"
        maps = call([sys.executable, "-c", text], self.environment)
        found = re.search(r"(/\S*/libcuda\.so\S*)", maps)
        if not found:
            raise BenchError("libcuda.so.1 cannot be found")
        return found.group(1)

    def untraced(self):
        # So many more calls that it takes about as long.
        return ns_per_call(call([self.program, self.arguments.calls * 100, self.arguments.threads], self.environment))

    def empty_probes(self):
        """What the kernel itself takes to stop at the same place and at the return: no tracer can be cheaper."""
        listed = call([self.arguments.warpscope, "trace", "--list", FUNCTION, "--lib", self.library])
        plus = re.search(rf"^\s*{FUNCTION}\s+\+(\d+)", listed, re.MULTILINE)
        if not plus:
            raise BenchError(f"`warpscope trace --list` does not show {FUNCTION}:\n{listed}")
        return ns_per_call(call([self.empty, self.library, FUNCTION, plus.group(1), *self.loop], self.environment))

    def warpscope(self, *options):
        recording = self.directory / "trace.wscope"
        command = [self.arguments.warpscope, "trace", "-q", "--no-gpu", *options, "-o", recording, "--", *self.loop]
        output = call(command, self.environment)
        report = json.loads(call([self.arguments.warpscope, "report", "--json", recording]))
        seen = sum(f["calls"] for f in report["trace"]["functions"] if f["name"] == FUNCTION)
        made = self.arguments.calls * self.arguments.threads
        lost = report["lost"].get("ring_calls", 0)
        if seen + lost < made:
            raise BenchError(f"{made} calls were made, {seen} were traced, {lost} were lost")
        if lost:
            print(f"  {lost} of {made} calls were lost", file=sys.stderr)
        return ns_per_call(output)

    def trace(self):
        return self.warpscope()

    def summary(self):
        return self.warpscope("--summary-only")

    def bpftrace(self, at_return):
        probe = f"{self.library}:{FUNCTION}"
        text = f"uprobe:{probe} {{ @start[tid] = nsecs; }} uretprobe:{probe} /@start[tid]/ {{ {at_return} delete(@start[tid]); }}"
        environment = dict(self.environment, BPFTRACE_PERF_RB_PAGES="4096")
        command = ["bpftrace", "-o", self.directory / "bpftrace.txt", "-e", text, "-c", " ".join(map(str, self.loop))]
        return ns_per_call(call(command, environment))

    def bpftrace_lines(self):
        return self.bpftrace('printf("%d %d %d\\n", tid, nsecs - @start[tid], retval);')

    def bpftrace_sums(self):
        return self.bpftrace("@calls = count(); @ns = sum(nsecs - @start[tid]); @by = hist(nsecs - @start[tid]);")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--gpu", action="store_true", help="the real libcuda")
    which.add_argument("--sim", action="store_true", help="the simulated GPU's libcuda")
    parser.add_argument("--warpscope", required=True, type=lambda p: str(Path(p).resolve()))
    parser.add_argument("--calls", type=int, default=200_000, help="calls a thread")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(arguments, Path(directory))
        times = {mode: [] for mode in bench.modes}
        for _ in range(arguments.rounds):
            for mode, run in bench.modes.items():
                times[mode].append(run())
    base = statistics.median(times["untraced"])
    ours = statistics.median(times["trace"]) - base
    print(f"{FUNCTION} of {bench.library}, {arguments.threads} thread(s), medians of {arguments.rounds} rounds")
    print(f"{'mode':<26}{'ns a call':>12}{'added':>12}{'of trace':>10}   min to max")
    for mode, runs in times.items():
        median = statistics.median(runs)
        share = f"{(median - base) / ours:.2f}" if mode != "untraced" else ""
        print(f"{mode:<26}{median:>12.0f}{median - base:>12.0f}{share:>10}   {min(runs):.0f} to {max(runs):.0f}")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"trace: {error}")
