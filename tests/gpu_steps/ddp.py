"""DistributedDataParallel with two ranks on one GPU, under torchrun."""

import os
import sys
import time

rank = int(os.environ["RANK"])
# NCCL refuses two ranks on one GPU, unless it believes that they are on different hosts.
os.environ["NCCL_HOSTID"] = f"host{rank}"
os.environ["NCCL_SOCKET_IFNAME"] = "lo"

import examples  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def main(steps):
    train = examples.load("train")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(rank)
    model = DistributedDataParallel(train.LanguageModel().cuda(), device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begins = []
    for _ in range(steps):
        begins.append(time.monotonic_ns())
        train.train_step(model, optimizer, generator)
        torch.cuda.synchronize()
    examples.say(begins)
    dist.destroy_process_group()


main(int(sys.argv[1]))
