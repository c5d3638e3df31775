#!/usr/bin/env python3
"""Measures what torch.profiler (CUDA only, no stacks) costs within one process: it is started and stopped in turns.

    bench/programs/torch_profiler.py [--program decode] [--pairs 100]

Each block of steps under the profiler is compared with the two around it, without. Starting and stopping it, which takes a large part of the
time, does not count. Prints the mean and the median of these ratios, and the standard error of the mean. Compare with windows.py: there, too,
records are switched on and off, and CUPTI is in the state "records, disabled again" of cupti_states.py outside the windows.
"""

import argparse
import importlib

from cupti_states import compare, show
from timed import profiler

BLOCK_SECONDS = 0.12


def main():
    parser = argparse.ArgumentParser(description="Measure what torch.profiler costs within one process.")
    parser.add_argument("--program", default="train_small", choices=["train_small", "decode"])
    parser.add_argument("--pairs", type=int, default=100)
    options = parser.parse_args()
    step = importlib.import_module(options.program).short_step()
    running = []

    def start():
        running.append(profiler("plain"))
        running[-1].start()

    def stop():
        running.pop().stop()

    for _ in range(100):
        step()
    # The first start prepares CUPTI.
    start()
    step()
    stop()
    show("torch.profiler", compare(step, options.pairs, BLOCK_SECONDS, start, stop))


if __name__ == "__main__":
    main()
