"""Starts ranks that share one GPU."""

import json
import os
import sys

RANK = int(os.environ["RANK"])
# NCCL refuses two ranks on one GPU, unless it believes that they are on different hosts.
os.environ["NCCL_HOSTID"] = f"host{RANK}"
os.environ["NCCL_SOCKET_IFNAME"] = "lo"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def begin(**more):
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", **more)
    return dist.get_world_size()


def say(what):
    """Prints what a rank knows, in one write, because all share the output."""
    sys.stdout.write(json.dumps({"rank": RANK, **what}) + "\n")
    sys.stdout.flush()


def end():
    torch.cuda.synchronize()
    dist.destroy_process_group()
