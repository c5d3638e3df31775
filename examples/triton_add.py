#!/usr/bin/env python3
"""Two Triton kernels, vector addition and row-wise softmax, checked against PyTorch.

    python3 triton_add.py [ITERATIONS]        default 100
"""

import argparse
import sys

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    sys.exit(f"triton_add.py needs PyTorch and Triton: {error}")

ELEMENTS = 1_000_003
ROWS, COLUMNS = 2048, 1000


@triton.jit
def add_kernel(a, b, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    tl.store(out + offsets, tl.load(a + offsets, mask=inside) + tl.load(b + offsets, mask=inside), mask=inside)


@triton.jit
def softmax_kernel(x, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row + offsets, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row + offsets, powers / tl.sum(powers, axis=0), mask=inside)


def add(a, b):
    out = torch.empty_like(a)
    add_kernel[(triton.cdiv(a.numel(), 1024),)](a, b, out, a.numel(), BLOCK=1024)
    return out


def softmax(x):
    out = torch.empty_like(x)
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, out, x.stride(0), columns, BLOCK=triton.next_power_of_2(columns))
    return out


def compute(a, b, x, iterations):
    for _ in range(iterations):
        total = add(a, b)
        shares = softmax(x)
    torch.cuda.synchronize()
    return total, shares


def main():
    parser = argparse.ArgumentParser(description="Run two Triton kernels and check them.")
    parser.add_argument("iterations", nargs="?", type=int, default=100)
    iterations = parser.parse_args().iterations
    if iterations < 1:
        parser.error("iterations must be at least 1")
    if not torch.cuda.is_available():
        sys.exit("triton_add.py needs a CUDA device, and PyTorch sees none")

    torch.manual_seed(1)
    a, b = torch.rand(ELEMENTS, device="cuda"), torch.rand(ELEMENTS, device="cuda")
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    total, shares = compute(a, b, x, iterations)
    torch.testing.assert_close(total, a + b)
    torch.testing.assert_close(shares, torch.softmax(x, dim=1))
    print(f"{iterations} iterations of add and softmax: correct")


if __name__ == "__main__":
    main()
