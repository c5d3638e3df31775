#!/usr/bin/env python3
"""A CUDA graph replayed in a loop: one call, 48 small kernels."""

import torch
from torch import nn

import timed

WIDTH, BATCH, LAYERS = 256, 32, 16


def main():
    options = timed.parse("Replay a captured graph.", steps=4000)
    torch.manual_seed(1)
    layers = (layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH)))
    model = nn.Sequential(*layers).cuda()
    inputs = torch.randn(BATCH, WIDTH, device="cuda")
    stream = torch.cuda.Stream()
    with torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(inputs)
    timed.run(options, graph.replay, launches_per_step=1)


if __name__ == "__main__":
    main()
