#!/usr/bin/env python3
"""What one call costs while `warpscope monitor` watches: the same loop unwatched, with probes that do nothing, and watched.

    bench/monitor/run.py --gpu --warpscope target/release/warpscope       the real libcuda; needs cc, root
    bench/monitor/run.py --sim --warpscope target/release/warpscope       the simulated GPU's libcuda

All take turns, so that a machine that grows slow is slow for all. Medians are printed, what the monitor adds to a call,
and the ratio. A round in which the monitor did not count every call is an error, not a fast round.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

TRACE = Path(__file__).resolve().parent.parent / "trace"
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


def find_probe(warpscope, environment):
    """libcuda as the program finds it, the function, and where warpscope probes that."""
    text = "import ctypes; ctypes.CDLL('libcuda.so.1'); print(open('/proc/self/maps').read())"
    library = re.search(r"(/\S*/libcuda\.so\S*)", call([sys.executable, "-c", text], environment))
    if not library:
        raise BenchError("libcuda.so.1 cannot be found")
    listed = call([warpscope, "trace", "--list", FUNCTION, "--lib", library.group(1)])
    plus = re.search(rf"^\s*{FUNCTION}\s+\+(\d+)", listed, re.MULTILINE)
    if not plus:
        raise BenchError(f"`warpscope trace --list` does not show {FUNCTION}:\n{listed}")
    return library.group(1), FUNCTION, plus.group(1)


class Monitor:
    """A monitor that runs for one round. A process that has libcuda mapped is there first, so that it is watched at once."""

    def __init__(self, warpscope, environment):
        text = "import ctypes; ctypes.CDLL('libcuda.so.1'); print('ready', flush=True); input()"
        self.pilot = subprocess.Popen([sys.executable, "-c", text], env=environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.pilot.stdout.readline()
        command = [warpscope, "monitor", "--metrics-addr", "127.0.0.1:0", "--display-interval", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.address = None
        for line in self.process.stderr:
            found = re.search(r"metrics on (http://\S+)", line)
            if found:
                self.address = found.group(1)
                break
        if not self.address:
            raise BenchError(f"the monitor did not start: exit status {self.process.wait()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.stderr.read()
        self.process.wait()
        self.pilot.communicate("\n")

    def counted(self):
        """Calls of the function that it has counted, of all processes called `loop`."""
        with urllib.request.urlopen(self.address) as answer:
            text = answer.read().decode()
        pattern = rf'^warpscope_call_duration_seconds_count\{{[^}}]*comm="loop"[^}}]*function="{FUNCTION}"\}} (\d+)'
        return sum(int(count) for count in re.findall(pattern, text, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--gpu", action="store_true", help="the real libcuda")
    which.add_argument("--sim", action="store_true", help="the simulated GPU's libcuda")
    parser.add_argument("--warpscope", required=True, type=lambda p: str(Path(p).resolve()))
    parser.add_argument("--calls", type=int, default=500_000, help="calls a thread")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    times = {"unwatched": [], "empty probes": [], "watched": []}
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "loop"
        empty = Path(directory) / "empty"
        compiler = os.environ.get("CC", "cc")
        call([compiler, "-O2", "-o", program, TRACE / "loop.c", "-ldl", "-lpthread"])
        call([compiler, "-O2", "-o", empty, TRACE / "empty.c", "-ldl"])
        environment = dict(os.environ)
        if arguments.sim:
            libraries = Path(directory) / "sim"
            call([arguments.warpscope, "sim", "--libs", libraries])
            environment["LD_LIBRARY_PATH"] = str(libraries)
        made = arguments.calls * arguments.threads
        loop = [program, arguments.calls, arguments.threads]
        probe = find_probe(arguments.warpscope, environment)
        for _ in range(arguments.rounds):
            # So many more calls that it takes about as long.
            times["unwatched"].append(ns_per_call(call([program, arguments.calls * 100, arguments.threads], environment)))
            times["empty probes"].append(ns_per_call(call([empty, *probe, *loop], environment)))
            with Monitor(arguments.warpscope, environment) as monitor:
                times["watched"].append(ns_per_call(call(loop, environment)))
                counted = monitor.counted()
            if counted < made:
                raise BenchError(f"{made} calls were made, {counted} were counted")
    base = statistics.median(times["unwatched"])
    print(f"{FUNCTION}, {arguments.threads} thread(s), medians of {arguments.rounds} rounds")
    print(f"{'mode':<14}{'ns a call':>12}{'added':>12}{'ratio':>10}   min to max")
    for mode, runs in times.items():
        median = statistics.median(runs)
        print(f"{mode:<14}{median:>12.1f}{median - base:>12.1f}{median / base:>10.1f}   {min(runs):.1f} to {max(runs):.1f}")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"monitor: {error}")
