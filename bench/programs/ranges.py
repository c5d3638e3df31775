#!/usr/bin/env python3
"""The training of train_small.py within NVTX ranges: PyTorch emits one for each operation, forward and backward. 87 launches per step."""

import torch
from torch import nn

import timed

WIDTH, BATCH, LAYERS = 256, 32, 16


def main():
    options = timed.parse("Train 16 small linear layers within NVTX ranges.", steps=200)
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(BATCH, WIDTH, device="cuda")

    def forward():
        return model(inputs).square().mean()

    def step():
        optimizer.zero_grad(set_to_none=True)
        forward().backward()
        optimizer.step()

    with torch.autograd.profiler.emit_nvtx():
        timed.run(options, step, launches_per_step=87)


if __name__ == "__main__":
    main()
