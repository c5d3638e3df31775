"""Four ranks, of which rank 2 never calls the last reduction: it sleeps in `load_batch`. The others wait for their GPU."""

import time

import ranks
import torch
import torch.distributed as dist


def load_batch():
    if ranks.RANK == 2:
        time.sleep(1000)


def step(x):
    load_batch()
    dist.all_reduce(x)
    torch.cuda.synchronize()


def main():
    ranks.begin()
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(5):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    ranks.say({"ready": True})
    step(x)


main()
