#!/usr/bin/env python3
"""Launch-bound training: 16 small layers, so that the GPU waits for the CPU. 87 launches per step."""

import torch
from torch import nn

import timed

WIDTH, BATCH, LAYERS = 256, 32, 16
LAUNCHES = 87


def training():
    """Returns one step of the training."""
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

    return step


short_step = training


def main():
    options = timed.parse("Train 16 small linear layers.", steps=400)
    timed.run(options, training(), launches_per_step=LAUNCHES)


if __name__ == "__main__":
    main()
