#!/usr/bin/env python3
"""Measures what the probes at launches cost within one process: they are attached and removed again every fifth of a second.

    sudo bench/programs/turns.py --warpscope target/release/warpscope [--tool monitor] [--seconds 20] [--rounds 3]

The speed of a program changes from one second to the next by more than the monitor costs, but hardly from one turn to the next. So each turn with
probes is compared with those directly before and after it, without: the medians of blocks of steps of about 10 ms. Prints the mean and the median
of these ratios, and the standard error of the mean. `empty launch probes` trap at the entry of the driver's launches and do nothing there: the
least that anything costs that counts launches by probes. The monitor's other probes stay attached; calls that are no launches are few.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from alternate import Program, empty_probes  # noqa: E402
from processes import BenchError, Monitor, call  # noqa: E402

TURN = 0.2
# The monitor compiles unwind tables first.
SETTLE = 3


def empty(options, program, directory, seconds):
    """Attaches and removes empty probes. Returns the turns with probes: when they were attached, when their removal began, when it ended."""
    turns, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        with empty_probes(options, program, directory):
            begin = time.monotonic()
            time.sleep(TURN)
            done = time.monotonic()
        turns.append((begin, done, time.monotonic()))
        time.sleep(TURN)
    return turns


def monitor(options, program, directory, seconds):
    """Runs the monitor, which attaches and removes its probes itself. Returns the same turns."""
    os.environ["WARPSCOPE_TURNS"] = str(round(TURN * 1000))
    with Monitor(options.warpscope, "--max-overhead", "100") as monitor:
        del os.environ["WARPSCOPE_TURNS"]
        begun = time.monotonic()
        reader = threading.Thread(target=monitor.wait)
        reader.start()
        time.sleep(SETTLE + seconds)
        monitor.process.terminate()
        reader.join()
    changes = re.findall(r"(watch|pause): attached or removed from (\d+) to (\d+)", monitor.messages)
    changes = [(kind, int(begin) / 1e9, int(end) / 1e9) for kind, begin, end in changes]
    pairs = zip(changes, changes[1:])
    return [(on[2], off[1], off[2]) for on, off in pairs if (on[0], off[0]) == ("watch", "pause") and on[2] > begun + SETTLE]


def ratios(program, turns):
    """Returns the ratio of each turn with probes to those before and after it."""
    found = []
    for before, here, after in zip(turns, turns[1:], turns[2:]):
        with_probes = program.median(*here[:2])
        without = [program.median(before[2], here[0]), program.median(here[2], after[0])]
        if with_probes and all(without):
            found.append(2 * with_probes / sum(without))
    return found


TOOLS = {"empty launch probes": empty, "monitor": monitor}


def main():
    parser = argparse.ArgumentParser(description="Measure what the probes at launches cost within one process.")
    parser.add_argument("--warpscope", required=True, type=lambda path: Path(path).resolve())
    parser.add_argument("--program", default="train_small", choices=["train_small", "train_large", "graph"])
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="measure only this tool; may be repeated")
    parser.add_argument("--seconds", type=float, default=20, help="how long to measure a tool in each round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    tools = options.tool or list(TOOLS)
    all_ratios = {tool: [] for tool in tools}
    with tempfile.TemporaryDirectory(prefix="warpscope-turns-") as directory:
        injector = Path(directory) / "bare_cupti.so"
        call(["cc", "-O2", "-shared", "-fPIC", "-o", injector, HERE.parent / "launch/bare_cupti.c", "-lpthread", "-ldl"])
        program = Program(options.program, injector, options.seconds, block=0.01)
        try:
            for number in range(options.rounds):
                for tool in tools:
                    of_round = ratios(program, TOOLS[tool](options, program, Path(directory), options.seconds))
                    all_ratios[tool] += of_round
                    show(f"round {number + 1}, {tool}", of_round)
        finally:
            program.close()
    for tool, of_tool in all_ratios.items():
        show(f"{options.program}: {tool}", of_tool)


def show(title, of_tool):
    if len(of_tool) < 2:
        raise BenchError(f"{title}: too few turns")
    error = statistics.stdev(of_tool) / len(of_tool) ** 0.5
    mean, median = statistics.mean(of_tool), statistics.median(of_tool)
    print(f"{title:<36} {mean:.3f} +- {error:.3f}, median {median:.3f}, {len(of_tool)} turns", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/programs: {error}")
