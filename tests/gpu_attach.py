#!/usr/bin/env python3
"""Attaches to running GPU programs, leaves, and compares them before and after. Needs a GPU, PyTorch, root.

    tests/gpu_attach.py --warpscope target/release/warpscope [--rounds 20] [--out DIR] [train|serve|jax|cupy...]

For each program (`gpu_attach/loop.py`): steps per second before, and after that many rounds of `record -p`; launches, and those
that were not matched; losses; the time from the start of warpscope to the first kernel in the recording; and how long a thread was
stopped. `train` and `jax` also run their framework's profiler beside `record -p` and alone, which must see the same number of events, and `train` runs `trace -p`, whose kernels must have names. Prints a line for each round; exits with 1 if a check fails.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpu_examples import PYTHON, ROOT, run

LOOP = ROOT / "tests/gpu_attach/loop.py"
PROGRAMS = ["train", "serve", "jax", "cupy"]
# Not a loss of events: Python and native frames of these stacks could not be paired.
NO_LOSS = {"python_stacks_uneven"}


class Program:
    def __init__(self, name, command=None):
        self.process = subprocess.Popen(command or [PYTHON, LOOP, name], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.expect("ready")

    def expect(self, word):
        """The numbers of the next line that begins with this word."""
        for line in self.process.stdout:
            first, *rest = line.split()
            if first == word:
                return [float(part) for part in rest]
        sys.exit(f"the program ended before it printed {word!r}: status {self.process.wait()}")

    def rate(self, blocks=12):
        """The median steps per second of the next blocks. What was printed before, while something was attached, is skipped."""
        began = time.monotonic()
        while True:
            self.expect("steps")
            if time.monotonic() - began > 0.05:
                break
            began = time.monotonic()
        return statistics.median(steps / seconds for steps, seconds in (self.expect("steps") for _ in range(blocks)))

    def profile(self):
        """The number of events that the framework's own profiler sees."""
        self.process.stdin.write("profile\n")
        self.process.stdin.flush()
        return int(self.expect("profile")[0])

    def end(self):
        self.process.stdin.close()
        for _ in self.process.stdout:
            pass
        return self.process.wait()


class Attached:
    """One `record -p`, and what its recording says."""

    def __init__(self, options, program, name, *more):
        self.warpscope, self.file = options.warpscope, options.out / f"{name}.wscope"
        self.began, self.messages = time.monotonic_ns(), ""
        command = [self.warpscope, "record", "-v", "-d", f"{options.seconds}s", *more, "-o", self.file, "-p", program.process.pid]
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def wait_until_loaded(self):
        for line in self.process.stderr:
            self.messages += line
            if "attached to process" in line:
                break

    def end(self):
        self.messages += self.process.communicate()[1]
        if self.process.returncode:
            return [f"record -p failed: {self.messages[-400:]}"]
        self.report = report = json.loads(run([self.warpscope, "report", "--json", self.file]).stdout)
        stopped = re.search(r"stopped for ([\d.]+) ms", self.messages)
        self.stopped = float(stopped[1]) if stopped else float("nan")
        self.first = (self.first_kernel() - self.began) / 1e9
        lost = {cause: count for cause, count in report["lost"].items() if count and cause not in NO_LOSS}
        wrong = []
        # With graphs, one launch has many matched activities.
        if not report["launches"] or report["matched"] < report["launches"] or report["pending_launches"]:
            wrong.append(f"{report['matched']} of {report['launches']} launches matched, {report['pending_launches']} pending")
        if report["unmatched_activities"]:
            wrong.append(f"{report['unmatched_activities']} activities unmatched")
        if lost:
            wrong.append(f"lost: {lost}")
        return wrong

    def first_kernel(self):
        lines = subprocess.Popen([self.warpscope, "export", "--format", "jsonl", "-o", "-", self.file], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
        with lines:
            first = next((json.loads(line)["ts_ns"] for line in lines.stdout if line.startswith(b'{"type":"kernel"')), 0)
            lines.kill()
        return first


def profiler(options, program):
    """The framework's own profiler beside a recording, its first use in this process, then alone, and beside another recording."""
    counts, wrong = [], []
    for place in ("beside", "alone", "beside again"):
        attached = Attached(options, program, "beside") if place != "alone" else None
        if attached:
            attached.wait_until_loaded()
        counts.append(program.profile())
        found = attached.end() if attached else []
        wrong += [f"own profiler {place}: {text}" for text in found]
        pauses = attached.report.get("pauses", []) if attached and attached.process.returncode == 0 else []
        paused = f", which paused for {sum(pause['ns'] for pause in pauses) / 1e6:.0f} ms" if attached else ""
        print(f"own profiler {place}{' record' if attached else ''}{paused}: {counts[-1]} events", flush=True)
    return wrong + ([] if len(set(counts)) == 1 and counts[0] else ["the framework's own profiler does not see the same events"])


def names(options, program):
    """The kernels of `trace -p` and of `record --no-inject -p`."""
    trace = options.out / "trace.wscope"
    command = [options.warpscope, "trace", "-q", "-d", "3s", "-o", trace, "-p", program.process.pid]
    done = run(command)
    lines = run([options.warpscope, "export", "--format", "jsonl", "-o", "-", trace]).stdout.splitlines()
    kernels = [event["args"]["kernel"] for event in map(json.loads, lines) if "kernel" in event.get("args", {})]
    unnamed = sum(re.fullmatch(r"0x[0-9a-f]+", kernel) is not None for kernel in kernels)
    print(f"trace -p: {len(kernels)} launches with a kernel, {unnamed} of them without its name", flush=True)
    counted = options.out / "counted.wscope"
    run([options.warpscope, "record", "--no-inject", "-q", "-d", "3s", "-o", counted, "-p", program.process.pid])
    report = json.loads(run([options.warpscope, "report", "--json", counted]).stdout)
    lost = {cause: count for cause, count in report["lost"].items() if count and cause not in NO_LOSS}
    launches = next(event["count"] for event in report["events"] if event["name"] == "kernel-launches")
    print(f"record --no-inject -p: {launches} launches counted, lost: {lost or 'nothing'}", flush=True)
    wrong = [f"trace -p: {unnamed} of {len(kernels)} kernels have no name: {done.stderr[-200:]}"] if unnamed or not kernels else []
    return wrong + ([f"record --no-inject: lost {lost}"] if lost or not launches else [])


def rounds(options, name):
    program = Program(name)
    before = program.rate()
    wrong, firsts, stops = [], [], []
    for number in range(options.rounds):
        attached = Attached(options, program, f"{name}-{number}")
        found = attached.end()
        wrong += [f"{name}, round {number}: {text}" for text in found]
        if not found:
            firsts.append(attached.first)
            stops.append(attached.stopped)
            print(f"{name} {number}: {attached.report['launches']} launches matched, first kernel after {attached.first:.2f} s, "
                  f"stopped for {attached.stopped:.2f} ms", flush=True)
        attached.file.unlink(missing_ok=True)
    after = program.rate()
    print(f"{name}: {before:.0f} steps per second before, {after:.0f} after ({after / before:.3f})", flush=True)
    if firsts:
        print(f"{name}: first kernel after {min(firsts):.2f}, {statistics.median(firsts):.2f}, {max(firsts):.2f} s (min, median, max); "
              f"stopped for {statistics.median(stops):.2f}, at most {max(stops):.2f} ms", flush=True)
    if name == "train":
        wrong += names(options, program)
    if name in ("train", "jax"):
        wrong += profiler(options, program)
    if status := program.end():
        wrong.append(f"{name} ended with status {status}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpscope", required=True, type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}")
    options = parser.parse_args()
    options.out = options.out or Path(tempfile.mkdtemp(prefix="warpscope-gpu-"))
    options.out.mkdir(parents=True, exist_ok=True)
    wrong = [text for name in options.names or PROGRAMS for text in rounds(options, name)]
    for text in wrong:
        print(f"WRONG: {text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
