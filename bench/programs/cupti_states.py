#!/usr/bin/env python3
"""Measures what CUPTI itself costs in a launch-bound program, state by state, within one process.

    bench/programs/cupti_states.py [--program decode] [--state records] [--pairs 100]

The speed of a program changes from one second to the next by more than CUPTI costs, so the state changes every 40 ms, and each block of steps
is compared with the two around it, in which CUPTI was finalized. Prints the mean and the median of these ratios, and the standard error of the mean.
"""

import argparse
import ctypes
import importlib
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
# What the client calls to get into the state.
STATES = {
    "nothing": [],
    "callbacks at launches": ["subscribe"],
    "records, disabled again": ["enable", "disable"],
    "records": ["enable"],
    "records and callbacks": ["enable", "subscribe"],
}
BLOCK_SECONDS = 0.04


def block(step, steps):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def compare(step, pairs, seconds, on, off):
    """Returns the ratio of each block of about so many seconds after `on` to the blocks before and after it, which are after `off`."""
    steps = max(1, round(seconds / block(step, 1)))
    ratios, before = [], block(step, steps)
    for _ in range(pairs):
        on()
        step()
        here = block(step, steps)
        off()
        step()
        after = block(step, steps)
        ratios.append(2 * here / (before + after))
        before = after
    return ratios


def show(title, ratios):
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    print(f"{title:<26} {statistics.mean(ratios):.3f} +- {error:.3f}, median {statistics.median(ratios):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Measure what CUPTI itself costs, state by state.")
    parser.add_argument("--program", default="train_small", choices=["train_small", "decode"])
    parser.add_argument("--state", action="append", choices=list(STATES), help="measure only this state; may be repeated")
    parser.add_argument("--pairs", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="warpscope-cupti-") as directory:
        library = Path(directory) / "bare_cupti.so"
        source = HERE.parent / "launch/bare_cupti.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-lpthread", "-ldl"], check=True)
        client = ctypes.CDLL(str(library))
    step = importlib.import_module(options.program).short_step()
    for _ in range(100):
        step()

    def off():
        if client.bare_cupti_finalize() != 0:
            raise SystemExit("cuptiFinalize failed")

    for state in options.state or STATES:

        def on(calls=STATES[state]):
            for call in calls:
                getattr(client, f"bare_cupti_{call}")()

        show(state, compare(step, options.pairs, BLOCK_SECONDS, on, off))


if __name__ == "__main__":
    main()
