"""Reductions of one communicator, for which rank 1 is late in every fifth step: it sleeps in `load_batch`."""

import time

import ranks
import torch
import torch.distributed as dist

STEPS = 40


def load_batch(step):
    if ranks.RANK == 1 and step % 5 == 2:
        time.sleep(0.25)


def main():
    ranks.begin()
    cpu = dist.new_group(backend="gloo")
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(5):
        dist.all_reduce(x)
    calls = []
    for step in range(STEPS):
        torch.cuda.synchronize()
        dist.barrier(group=cpu)
        load_batch(step)
        calls.append(time.monotonic_ns())
        dist.all_reduce(x)
    torch.cuda.synchronize()
    ranks.say({"calls": calls})
    ranks.end()


main()
