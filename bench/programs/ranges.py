#!/usr/bin/env python3
"""The training of train_small.py within NVTX ranges: PyTorch emits one for each operation, forward and backward."""

import torch

import timed
import train_small


def main():
    options = timed.parse("Train 16 small linear layers within NVTX ranges.", steps=200)
    with torch.autograd.profiler.emit_nvtx():
        timed.run(options, train_small.training(), launches_per_step=train_small.LAUNCHES)


if __name__ == "__main__":
    main()
