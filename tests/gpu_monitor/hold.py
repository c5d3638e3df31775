"""Uses GPU memory in a known way, prints PyTorch's statistics, and waits for a line.

    hold.py train        ten steps of examples/train.py
    hold.py leak         keeps 50 tensors of 3 MiB and frees 50 others
"""

import json
import os
import sys
from pathlib import Path

import torch

KEPT = []
MIB = 1 << 20


def forget_to_free():
    KEPT.append(torch.empty(3 * MIB, dtype=torch.uint8, device="cuda"))


def allocate_and_free():
    torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")


def leak():
    for _ in range(50):
        forget_to_free()
        allocate_and_free()


def train():
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
    from train import LanguageModel, train_step

    generator = torch.Generator().manual_seed(1)
    model = LanguageModel().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    KEPT.extend([model, optimizer])
    for _ in range(10):
        train_step(model, optimizer, generator)


{"train": train, "leak": leak}[sys.argv[1]]()
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
names = ["num_device_alloc", "num_device_free", "reserved_bytes.all.current", "reserved_bytes.all.peak", "allocated_bytes.all.current"]
print(json.dumps({"pid": os.getpid(), **{name: stats.get(name) for name in names}}), flush=True)
sys.stdin.readline()
