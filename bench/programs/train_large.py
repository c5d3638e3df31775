#!/usr/bin/env python3
"""GPU-bound training: layers so wide that the CPU waits for the GPU."""

import torch
from torch import nn

import timed

WIDTH, BATCH, LAYERS = 8192, 4096, 4


def main():
    options = timed.parse("Train 4 wide linear layers.", steps=40, warm_up=5)
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).bfloat16()
        inputs = torch.randn(BATCH, WIDTH, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(inputs).float().square().mean().backward()
        optimizer.step()

    timed.run(options, step, launches_per_step=25)


if __name__ == "__main__":
    main()
