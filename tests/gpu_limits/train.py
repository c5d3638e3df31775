"""Trains a small transformer, and prints how long a step takes and what the weights are at the end.

usage: train.py STEPS [WIDTH]
"""

import hashlib
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

steps, width = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 512
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0)
model = torch.nn.TransformerEncoder(layer, 4).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
batch = torch.randn(16, 256, width, device="cuda", dtype=torch.bfloat16)
times = []
for _ in range(steps):
    begin = time.perf_counter()
    optimizer.zero_grad()
    loss = (model(batch).float() ** 2).mean()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - begin)
digest = hashlib.sha256()
for weights in model.parameters():
    digest.update(weights.detach().float().cpu().numpy().tobytes())
times = sorted(times[steps // 10 :])
print(f"STEP {times[len(times) // 2] * 1e3:.3f} {sum(times) / len(times) * 1e3:.3f} {digest.hexdigest()[:16]}")
