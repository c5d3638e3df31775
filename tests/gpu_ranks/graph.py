"""A captured reduction that is replayed."""

import ranks
import torch
import torch.distributed as dist


def main():
    ranks.begin()
    x, graph, stream = torch.ones(1 << 18, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        dist.all_reduce(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            dist.all_reduce(x)
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    for _ in range(5):
        dist.all_reduce(x)
    # NCCL waits at its end for graphs that it is captured in.
    torch.cuda.synchronize()
    graph.reset()
    ranks.say({"replays": 10})
    ranks.end()


main()
