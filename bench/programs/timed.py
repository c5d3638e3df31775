"""Shared by the Python programs here: times the steps after a warm-up, optionally under torch.profiler.

Each program prints one line, `us_per_step X launches_per_step N`. Start-up, imports and warm-up do not count. With `--repeat` it
repeats blocks of steps instead, until its standard input is closed, and prints begin, end and steps of each (see alternate.py).
"""

import argparse
import contextlib
import ctypes
import select
import sys
import time

import torch


def parse(description, steps, warm_up=20):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--warm-up", type=int, default=warm_up)
    parser.add_argument("--profiler", choices=["plain", "stacks"], help="run under torch.profiler")
    parser.add_argument("--repeat", metavar="LIBRARY", help="repeat until standard input is closed; the library is the bare CUPTI client")
    parser.add_argument("--block", type=float, default=0.05, help="with --repeat: about how many seconds a block of steps takes")
    return parser.parse_args()


def profiler(kind):
    """Returns torch.profiler in its usual configuration, or a null context."""
    if kind is None:
        return contextlib.nullcontext()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    if kind == "stacks":
        activities.append(torch.profiler.ProfilerActivity.CPU)
    return torch.profiler.profile(activities=activities, with_stack=kind == "stacks")


def run(options, step, launches_per_step):
    """Runs the warm-up, then the steps, and prints the time of one step."""
    for _ in range(options.warm_up):
        step()
    torch.cuda.synchronize()
    if options.repeat:
        repeat(options.repeat, step, options.block)
        return
    with profiler(options.profiler):
        # The profiler's start-up time is not part of a step.
        step()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(options.steps):
            step()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    print(f"us_per_step {seconds * 1e6 / options.steps:.3f} launches_per_step {launches_per_step}", flush=True)


def repeat(library, step, seconds):
    """Repeats blocks of about so many seconds. Between two blocks, the lines `enable` and `disable` control the bare CUPTI client, and `start` and
    `stop` torch.profiler."""
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    steps = max(1, round(seconds / (time.perf_counter() - begin)))
    client = own = None
    while True:
        while select.select([sys.stdin], [], [], 0)[0]:
            line = sys.stdin.readline().strip()
            if not line:
                return
            if line == "start":
                own = profiler("plain")
                own.start()
            elif line == "stop":
                own.stop()
            else:
                client = client or ctypes.CDLL(library)
                getattr(client, f"bare_cupti_{line}")()
        begin = time.monotonic()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        print(begin, time.monotonic(), steps, flush=True)
