#!/usr/bin/env python3
"""Measures the cost of CPU sampling: keeps all CPUs busy, alternately bare and under `warpscope record --cpu-only`.

    sudo bench/sampler/run.py --warpscope target/release/warpscope [--python python3.12]

For a C program and for a Python program it prints
- sampler: the share of each busy CPU spent in the BPF program, as counted by the kernel;
- collector: the share of one CPU spent in warpscope's own threads;
- throughput of the busy loops under recording, as a ratio to bare. It includes everything, also the timer interrupt.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import watch  # noqa: E402
from processes import BenchError, call  # noqa: E402


def rounds(command):
    """Runs a program that prints its rounds. Returns them and the counters of the process."""
    watched = []
    out = call(command, started=lambda pid: watched.append(watch.Watch(pid, watch.SAMPLER)))
    found = re.search(r"^rounds (\d+)$", out, re.MULTILINE)
    if not found:
        raise BenchError(f"the program printed no rounds:\n{out}")
    return int(found.group(1)), watched[0].stop()


def measure(arguments, program, directory):
    recording = directory / "busy.wscope"
    options = ["--cpu-only", "--as-root", "-q", "-F", arguments.frequency, "-o", recording]
    record = [arguments.warpscope, "record", *options, "--", *program]
    ratios, sampler, collector, sample_ns = [], [], [], []
    for turn in range(arguments.rounds):
        # Each variant runs first equally often.
        bare = rounds(program)[0] if turn % 2 == 0 else None
        recorded, counted = rounds(record)
        bare = bare or rounds(program)[0]
        if counted is None or not counted.bpf_runs:
            raise BenchError("the sampler did not run")
        ratios.append(recorded / bare)
        sampler.append(100 * counted.bpf_ns / 1e9 / counted.seconds / os.cpu_count())
        collector.append(100 * counted.cpu_ns / 1e9 / counted.seconds)
        sample_ns.append(counted.bpf_ns / counted.bpf_runs)
        print(f"round {turn + 1}/{arguments.rounds}: {ratios[-1]:.4f} of bare", file=sys.stderr)
    rows = {"sampler_percent": sampler, "collector_percent": collector, "ns_per_sample": sample_ns, "throughput": ratios}
    return {name: {"median": statistics.median(v), "least": min(v), "most": max(v)} for name, v in rows.items()}


def table(results):
    lines = [f"{'':<8}{'sampler, % of each CPU':>28}{'collector, % of one':>26}{'us per sample':>20}{'throughput to bare':>26}"]

    def cell(row, scale, digits):
        least, median, most = (f"{row[k] * scale:.{digits}f}" for k in ("least", "median", "most"))
        return f"{median} ({least}..{most})"

    for name, rows in results.items():
        lines.append(
            f"{name:<8}{cell(rows['sampler_percent'], 1, 3):>28}{cell(rows['collector_percent'], 1, 3):>26}"
            f"{cell(rows['ns_per_sample'], 1e-3, 1):>20}{cell(rows['throughput'], 1, 4):>26}"
        )
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure the cost of CPU sampling.")
    parser.add_argument("--warpscope", required=True, help="the warpscope program to measure")
    parser.add_argument("--python", default="python3", help="the interpreter for the Python program")
    parser.add_argument("--frequency", type=int, default=99)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--depth", type=int, default=30, help="frames above the busy loop")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    arguments = parser.parse_args()
    arguments.warpscope = os.path.abspath(arguments.warpscope)
    return arguments


def main():
    arguments = parse_arguments()
    compiler = next(filter(None, map(shutil.which, [os.environ.get("CC", "cc"), "gcc", "clang"])), None)
    if not compiler:
        raise BenchError("no C compiler was found")
    with tempfile.TemporaryDirectory(prefix="warpscope-sampler-") as directory, watch.bpf_statistics():
        busy = Path(directory) / "busy"
        call([compiler, "-O2", "-fomit-frame-pointer", "-o", busy, HERE / "busy.c", "-lpthread"])
        size = [arguments.seconds, arguments.depth]
        programs = {"C": [busy, *size], "Python": [arguments.python, HERE / "busy.py", *size]}
        results = {name: measure(arguments, program, Path(directory)) for name, program in programs.items()}
    print(json.dumps(results, indent=2) if arguments.json else table(results))


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/sampler: {error}")
