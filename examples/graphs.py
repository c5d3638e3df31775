#!/usr/bin/env python3
"""Captures a small network into a CUDA graph and replays it: one launch call, many kernels.

    python3 graphs.py [REPLAYS]        default 100
"""

import argparse
import sys

try:
    import torch
    from torch import nn
except ImportError as error:
    sys.exit(f"graphs.py needs PyTorch: {error}")

BATCH, WIDTH = 64, 1024


def create_network():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Softmax(dim=1)
    ).cuda()


def warm_up(network, static_input):
    """Runs once on a side stream: libraries allocate on first use, which is not allowed during capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            network(static_input)
    torch.cuda.current_stream().wait_stream(stream)


def capture(network, static_input):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = network(static_input)
    return graph, static_output


def replay(graph, static_input, inputs, replays):
    for i in range(replays):
        static_input.copy_(inputs[i % len(inputs)])
        graph.replay()


@torch.no_grad()
def run(replays):
    network = create_network()
    inputs = [torch.randn(BATCH, WIDTH, device="cuda") for _ in range(4)]
    static_input = torch.zeros(BATCH, WIDTH, device="cuda")
    warm_up(network, static_input)
    graph, static_output = capture(network, static_input)
    replay(graph, static_input, inputs, replays)
    expected = network(inputs[(replays - 1) % len(inputs)])
    torch.testing.assert_close(static_output, expected)


def main():
    parser = argparse.ArgumentParser(description="Capture a CUDA graph, replay it and check the result.")
    parser.add_argument("replays", nargs="?", type=int, default=100)
    replays = parser.parse_args().replays
    if replays < 1:
        parser.error("replays must be at least 1")
    if not torch.cuda.is_available():
        sys.exit("graphs.py needs a CUDA device, and PyTorch sees none")
    run(replays)
    print(f"{replays} replays: correct")


if __name__ == "__main__":
    main()
