"""Calls a libcuda function that does almost nothing in a loop, with and without probes. Shared by the `trace` and `monitor` benchmarks."""

import os
import re
import statistics
import sys
from pathlib import Path

from processes import BenchError, call

# Cheap after the first call, and no query function: those are not monitored.
FUNCTION = "cuInit"
SOURCES = Path(__file__).resolve().parent / "trace"


def ns_per_call(output):
    found = re.search(r"^ns_per_call ([0-9.]+)$", output, re.MULTILINE)
    if not found:
        raise BenchError(f"the program printed no ns_per_call:\n{output}")
    return float(found.group(1))


def places(warpscope, library, pattern):
    """Returns the functions of a library that match, each with the offset where warpscope places its probe."""
    listed = call([warpscope, "trace", "--list", pattern, "--lib", library])
    found = dict(re.findall(r"^\s*(\w+)\s+\+(\d+)", listed, re.MULTILINE))
    if not found:
        raise BenchError(f"`warpscope trace --list` does not show {pattern}:\n{listed}")
    return found


def build_empty(directory):
    """Builds the program that attaches empty probes."""
    program = directory / "empty"
    call([os.environ.get("CC", "cc"), "-O2", "-o", program, SOURCES / "empty.c", "-ldl"])
    return program


def add_arguments(parser, calls):
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--gpu", action="store_true", help="use the real libcuda")
    which.add_argument("--sim", action="store_true", help="use the simulated GPU's libcuda")
    parser.add_argument("--warpscope", required=True, type=lambda p: str(Path(p).resolve()))
    parser.add_argument("--calls", type=int, default=calls, help="calls per thread")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)


class Loop:
    """The loop, built in a directory, and how to run it without probes and with empty probes."""

    def __init__(self, arguments, directory):
        self.arguments = arguments
        program, self.empty = directory / "loop", build_empty(directory)
        call([os.environ.get("CC", "cc"), "-O2", "-o", program, SOURCES / "loop.c", "-ldl", "-lpthread"])
        self.environment = dict(os.environ)
        if arguments.sim:
            call([arguments.warpscope, "sim", "--libs", directory / "sim"])
            self.environment["LD_LIBRARY_PATH"] = str(directory / "sim")
        # One more initialises the driver.
        self.made = arguments.calls * arguments.threads + 1
        self.command = [program, arguments.calls, arguments.threads]
        # Enough additional calls to take about as long.
        self.longer = [program, arguments.calls * 100, arguments.threads]
        self.library = self.find_library()
        self.plus = self.find_place()

    def find_library(self):
        """Returns the libcuda that the program loads."""
        text = "import ctypes; ctypes.CDLL('libcuda.so.1'); print(open('/proc/self/maps').read())"
        found = re.search(r"(/\S*/libcuda\.so\S*)", call([sys.executable, "-c", text], self.environment))
        if not found:
            raise BenchError("libcuda.so.1 cannot be found")
        return found.group(1)

    def find_place(self):
        """Returns the offset in the function where warpscope places its probe."""
        return places(self.arguments.warpscope, self.library, FUNCTION)[FUNCTION]

    def alone(self):
        return ns_per_call(call(self.longer, self.environment))

    def probed(self):
        """Runs the loop as it is: its caller has attached the probes."""
        return ns_per_call(call(self.command, self.environment))

    def with_empty_probes(self):
        """Measures the kernel's own cost of trapping at the same instruction and at the return: a lower bound for any tool."""
        place = f"{FUNCTION}+{self.plus}"
        return ns_per_call(call([self.empty, "both", self.library, place, *self.command], self.environment))


def print_table(loop, modes, of):
    """Runs the modes alternately and prints medians; what each adds is also printed as a ratio to what `of` adds."""
    times = {mode: [] for mode in modes}
    for _ in range(loop.arguments.rounds):
        for mode, run in modes.items():
            times[mode].append(run())
    medians = {mode: statistics.median(runs) for mode, runs in times.items()}
    base = next(iter(medians.values()))
    print(f"{FUNCTION} of {loop.library}, {loop.arguments.threads} thread(s), medians of {loop.arguments.rounds} rounds")
    print(f"{'mode':<26}{'ns per call':>12}{'added':>10}{'ratio':>10}{'of ' + of:>14}   min to max")
    for mode, runs in times.items():
        added = medians[mode] - base
        share = added / (medians[of] - base)
        print(f"{mode:<26}{medians[mode]:>12.0f}{added:>10.0f}{medians[mode] / base:>10.1f}{share:>14.2f}   {min(runs):.0f} to {max(runs):.0f}")
