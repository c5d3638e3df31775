#!/usr/bin/env python3
"""Measures the cost of warpscope within one process: the tools attach to it and leave again, in turns.

    sudo bench/programs/alternate.py --warpscope target/release/warpscope
    sudo bench/programs/alternate.py --warpscope ... --program decode --tool record --tool monitor --rounds 10

Two processes of the same program differ by up to a third in speed, more than most tools cost. So one process runs all the time and
prints the time of its steps; each tool watches it for some seconds, and its steps are compared with those directly before and
after, when nothing watched. The baseline, bare CUPTI activity, is enabled and disabled by the program itself between two steps, and so is
torch.profiler (CUDA only, no stacks), each in a process of its own, because CUPTI has one client at a time. Prints the ratio to
bare of each turn, their median, and the ratio to bare CUPTI; then the same for undisturbed steps, the lower quartile of the blocks of
about 50 ms, which varies less than the mean.

Two tools are lower bounds. `--tool "CUPTI with callbacks"` is bare CUPTI with a callback at each launch that does nothing, for whatever
ties kernels to their launches. `--tool "empty launch probes"` traps at the entry of the driver's launches and does nothing there, for
whatever counts launches by probes, as the monitor does.
"""

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from probed_call import build_empty, places  # noqa: E402
from processes import BenchError, Monitor, call  # noqa: E402

RECORD = ["record", "--as-root", "-v"]
TOOLS = {
    "bare CUPTI": None,
    "CUPTI with callbacks": None,
    "torch.profiler": None,
    "record": RECORD,
    "record --gpu-only": [*RECORD, "--gpu-only"],
    "record --no-handover": [*RECORD, "--no-handover"],
    "record --no-python": [*RECORD, "--no-python"],
    "record --off-cpu": [*RECORD, "--off-cpu"],
    "record --memory": [*RECORD, "--memory"],
    "record --forward-lines": [*RECORD, "--forward-lines"],
    "record --max-overhead 3": [*RECORD, "--max-overhead", "3"],
    "monitor": None,
    "monitor --max-overhead 3": None,
    "empty launch probes": None,
}
# What the program switches on and off itself: the lines that it takes for that.
OWN = {
    "bare CUPTI": ("enable", "disable"),
    "CUPTI with callbacks": ("enable_callbacks", "disable_callbacks"),
    "torch.profiler": ("start", "stop"),
}
SETTLE = 0.5
# warpscope compiles unwind tables on other CPUs when it has attached.
SETTLE_TABLES = 2
# The microseconds of a step: on average, and in the undisturbed blocks.
Speed = namedtuple("Speed", ["mean", "undisturbed"])


class Program:
    """A program of this folder that repeats its step until its standard input is closed, and prints each block's time."""

    def __init__(self, name, injector, seconds):
        self.seconds = seconds
        command = [sys.executable, HERE / f"{name}.py", "--repeat", injector, "--block", "0.05"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.blocks = []
        self.ready = threading.Event()
        threading.Thread(target=self.read, daemon=True).start()
        if not self.ready.wait(120):
            raise BenchError(f"{name} did not begin its steps")
        time.sleep(3)

    def read(self):
        for line in self.process.stdout:
            begin, end, steps = line.split()
            self.blocks.append((float(begin), float(end), int(steps)))
            self.ready.set()

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def step(self, begin, end):
        """Returns the speed in the blocks within the interval."""
        within = [block for block in self.blocks if block[0] >= begin and block[1] <= end]
        if not within:
            raise BenchError("no block of steps is within the interval")
        each = sorted((block[1] - block[0]) * 1e6 / block[2] for block in within)
        mean = sum(block[1] - block[0] for block in within) * 1e6 / sum(block[2] for block in within)
        return Speed(mean, each[len(each) // 4])

    def watch(self):
        """Waits, and returns the speed meanwhile."""
        begin = time.monotonic()
        time.sleep(self.seconds)
        end = time.monotonic()
        return self.step(begin, end)

    def wait_for_block(self):
        """Waits for the next block that began from now on: what was sent before has been done."""
        now = time.monotonic()
        while self.blocks[-1][0] < now:
            time.sleep(0.01)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


def attached(options, program, tool, directory):
    """Returns the speed while a recording is attached."""
    command = [options.warpscope, *TOOLS[tool], "-o", directory / "out.wscope", "-p", program.process.pid]
    recording = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    messages = ""
    for line in recording.stderr:
        messages += line
        if re.search(r"attached to", line):
            break
    time.sleep(SETTLE_TABLES)
    speed = program.watch()
    recording.send_signal(2)
    messages += recording.stderr.read()
    if recording.wait(60) != 0:
        raise BenchError(f"{' '.join(map(str, command))}: exit status {recording.returncode}\n{messages}")
    print(*re.findall(r"warpscope took .*", messages), file=sys.stderr, flush=True)
    return speed


@contextlib.contextmanager
def empty_probes(options, program, directory):
    """Traps at the entry of the driver's launches, with programs that do nothing."""
    maps = Path(f"/proc/{program.process.pid}/maps").read_text()
    library = re.search(r"(/\S*/libcuda\.so\S*)", maps).group(1)
    found = places(options.warpscope, library, "cuLaunchKernel*").items()
    functions = ",".join(f"{name}+{plus}" for name, plus in found)
    command = [build_empty(directory), "entry", library, functions, "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probes:
        probes.stdin.write(b"attached\n")
        probes.stdin.flush()
        if probes.stdout.readline() != b"attached\n":
            raise BenchError("the empty probes cannot be attached")
        yield
        probes.stdin.close()


def turn(options, program, tool, directory):
    """Returns the ratios to bare of one turn: the tool's speed to the mean of those before and after."""
    before = program.watch()
    if tool in OWN:
        on, off = OWN[tool]
        program.send(on)
        time.sleep(SETTLE)
        speed = program.watch()
        program.send(off)
        program.wait_for_block()
    elif tool.startswith("monitor"):
        with Monitor(options.warpscope, *tool.split()[1:]) as monitor:
            time.sleep(SETTLE_TABLES)
            monitor.scrape()
            speed = program.watch()
    elif tool == "empty launch probes":
        with empty_probes(options, program, directory):
            time.sleep(SETTLE)
            speed = program.watch()
    else:
        speed = attached(options, program, tool, directory)
    time.sleep(SETTLE)
    after = program.watch()
    ratios = Speed(*(2 * here / (one + other) for here, one, other in zip(speed, before, after)))
    steps = " -> ".join(f"{part.mean:.0f}" for part in (before, speed, after))
    print(f"{tool}: {steps} us, {ratios.mean:.3f}, undisturbed {ratios.undisturbed:.3f}", file=sys.stderr, flush=True)
    return ratios


def measure(options, tools, directory, injector):
    program = Program(options.program, injector, options.seconds)
    try:
        print(f"{options.program}: {program.watch().mean:.0f} us per step before the first tool", flush=True)
        ratios = {tool: [] for tool in tools}
        for number in range(options.rounds):
            first = number % len(tools)
            for tool in tools[first:] + tools[:first]:
                ratios[tool].append(turn(options, program, tool, directory))
        return ratios
    finally:
        program.close()


def main():
    parser = argparse.ArgumentParser(description="Measure the cost of warpscope within one process.")
    parser.add_argument("--warpscope", required=True, type=lambda path: Path(path).resolve())
    parser.add_argument("--program", default="train_small", choices=["train_small", "decode", "train_large", "graph"])
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="run only this tool; may be repeated")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.5, help="how long to watch the program with a tool, before and after")
    options = parser.parse_args()
    tools = options.tool or ["bare CUPTI", "record", "record --gpu-only", "monitor"]
    ratios = {}
    os.environ.pop("CUDA_INJECTION64_PATH", None)
    with tempfile.TemporaryDirectory(prefix="warpscope-alternate-") as directory:
        injector = Path(directory) / "bare_cupti.so"
        call(["cc", "-O2", "-shared", "-fPIC", "-o", injector, HERE.parent / "launch/bare_cupti.c", "-lpthread", "-ldl"])
        for tool in OWN:
            if tool in tools:
                ratios |= measure(options, [tool], Path(directory), injector)
        others = [tool for tool in tools if tool not in OWN]
        if others:
            ratios |= measure(options, others, Path(directory), injector)
    for part in Speed._fields:
        table(f"{options.program}, {part}", {tool: [getattr(turn, part) for turn in turns] for tool, turns in ratios.items()})


def table(title, ratios):
    cupti = statistics.median(ratios["bare CUPTI"]) if "bare CUPTI" in ratios else None
    print(f"{title:<26}{'to bare':>9}{'min..max':>16}{'to CUPTI':>10}")
    for tool, values in ratios.items():
        median = statistics.median(values)
        against = f"{median / cupti:>10.3f}" if cupti else f"{'-':>10}"
        print(f"{tool:<26}{median:>9.3f}{f'{min(values):.3f}..{max(values):.3f}':>16}{against}")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/programs: {error}")
