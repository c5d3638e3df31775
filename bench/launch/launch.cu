// The launch loop on a real GPU. Built by nvcc; loop.h documents the arguments.

#include <cuda_runtime.h>

#include "loop.h"

__global__ void empty_kernel() {}

static void check(cudaError_t result, const char *call)
{
    if (result != cudaSuccess) {
        fprintf(stderr, "launch: %s failed: %s\n", call, cudaGetErrorString(result));
        exit(1);
    }
}

static void launch_once(void)
{
    check(cudaLaunchKernel((const void *)empty_kernel, dim3(1), dim3(1), nullptr, 0, nullptr), "cudaLaunchKernel");
}

static void wait_for_gpu(void)
{
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

int main(int argc, char **argv)
{
    return run(argc, argv);
}
