#!/usr/bin/env python3
"""Measures what torch.profiler (CUDA only, no stacks) costs within one process: it is started and stopped in turns.

    bench/programs/torch_profiler.py [--program decode] [--pairs 100]

Each block of steps under the profiler is compared with the two around it, without. Starting and stopping it, which takes a large part of the
time, does not count. Prints the mean and the median of these ratios, and the standard error of the mean. Compare with windows.py: there, too,
records are switched on and off, and CUPTI is in the state "records, disabled again" of cupti_states.py outside the windows.
"""

import argparse
import importlib
import statistics
import time

from cupti_states import block
from timed import profiler

BLOCK_SECONDS = 0.12


def compare(step, pairs):
    """Returns the ratio of each block under the profiler to those before and after it."""
    steps = max(1, round(BLOCK_SECONDS / block(step, 1)))
    ratios, before = [], None
    for number in range(pairs + 1):
        own = profiler("plain")
        own.start()
        step()
        here = block(step, steps)
        own.stop()
        step()
        after = block(step, steps)
        # The first start prepares CUPTI.
        if number:
            ratios.append(2 * here / (before + after))
        before = after
    return ratios


def main():
    parser = argparse.ArgumentParser(description="Measure what torch.profiler costs within one process.")
    parser.add_argument("--program", default="train_small", choices=["train_small", "decode"])
    parser.add_argument("--pairs", type=int, default=100)
    options = parser.parse_args()
    step = importlib.import_module(options.program).short_step()
    for _ in range(100):
        step()
    begin = time.monotonic()
    ratios = compare(step, options.pairs)
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    took = time.monotonic() - begin
    print(f"torch.profiler {statistics.mean(ratios):.3f} +- {error:.3f}, median {statistics.median(ratios):.3f}, {len(ratios)} pairs in {took:.0f} s")


if __name__ == "__main__":
    main()
