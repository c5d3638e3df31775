#!/usr/bin/env python3
"""CuPy: a * x + y as a raw CUDA kernel and as an elementwise kernel, checked against NumPy.

    python3 cupy_saxpy.py [ITERATIONS]        default 100
"""

import argparse
import sys

try:
    import cupy
    import numpy
except ImportError as error:
    sys.exit(f"cupy_saxpy.py needs CuPy and NumPy: {error}")

ELEMENTS = 1 << 20
THREADS = 256

SAXPY = cupy.RawKernel(
    r"""
extern "C" __global__ void saxpy_raw(float a, const float* x, const float* y, float* out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = a * x[i] + y[i];
}
""",
    "saxpy_raw",
)

SAXPY_ELEMENTWISE = cupy.ElementwiseKernel(
    "float32 a, float32 x, float32 y", "float32 out", "out = a * x + y", "saxpy_elementwise"
)


def saxpy_raw(a, x, y):
    out = cupy.empty_like(x)
    blocks = (x.size + THREADS - 1) // THREADS
    SAXPY((blocks,), (THREADS,), (numpy.float32(a), x, y, out, numpy.int32(x.size)))
    return out


def saxpy_elementwise(a, x, y):
    return SAXPY_ELEMENTWISE(numpy.float32(a), x, y)


def compute(a, x, y, iterations):
    for _ in range(iterations):
        raw = saxpy_raw(a, x, y)
        elementwise = saxpy_elementwise(a, x, y)
    cupy.cuda.get_current_stream().synchronize()
    return raw, elementwise


def has_device():
    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def main():
    parser = argparse.ArgumentParser(description="Run two CuPy kernels and check them.")
    parser.add_argument("iterations", nargs="?", type=int, default=100)
    iterations = parser.parse_args().iterations
    if iterations < 1:
        parser.error("iterations must be at least 1")
    if not has_device():
        sys.exit("cupy_saxpy.py needs a CUDA device, and CuPy sees none")

    random = numpy.random.default_rng(1)
    x = random.random(ELEMENTS, dtype=numpy.float32)
    y = random.random(ELEMENTS, dtype=numpy.float32)
    results = compute(2.5, cupy.asarray(x), cupy.asarray(y), iterations)
    expected = numpy.float32(2.5) * x + y
    for result in results:
        numpy.testing.assert_allclose(cupy.asnumpy(result), expected, rtol=1e-6)
    print(f"{iterations} iterations of two saxpy kernels: correct")


if __name__ == "__main__":
    main()
