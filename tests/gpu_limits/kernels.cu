// Kernels of known nature, each run in turns: what limits them is known from how they are written.
//
// usage: kernels ROUNDS
#include <cstdio>
#include <cstdlib>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#define CHECK(call)                                                                                                                       \
    do {                                                                                                                                  \
        cudaError_t error = (call);                                                                                                       \
        if (error != cudaSuccess) {                                                                                                       \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error));                                           \
            std::exit(1);                                                                                                                 \
        }                                                                                                                                 \
    } while (0)

// DRAM bandwidth: each byte is read and written once.
__global__ void stream_copy(float4* to, const float4* from, size_t count) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

// DRAM bandwidth: each thread of a warp reads another sector, and uses an eighth of it.
__global__ void strided(float* to, const float* from, size_t count) {
    float sum = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        sum += from[i * 8];
    if (sum == 1234.5f) *to = sum;
}

// Memory, by a random sector of a large table for each thread.
__global__ void random_gather(float* to, const float* table, size_t mask, int rounds) {
    size_t at = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 2654435761u;
    float sum = 0;
    for (int i = 0; i < rounds; i++) {
        at = at * 6364136223846793005ull + 1442695040888963407ull;
        sum += table[(at >> 20) & mask];
    }
    if (sum == 1234.5f) *to = sum;
}

// Shared memory: all threads of a warp read from one bank.
__global__ void bank_conflicts(float* to, int rounds) {
    __shared__ float words[32 * 32];
    for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) words[i] = i;
    __syncthreads();
    float sum = 0;
    int at = threadIdx.x % 32 * 32;
    for (int i = 0; i < rounds; i++) {
        sum += *(volatile float*)&words[at + i % 32];
    }
    if (sum == 1234.5f) *to = sum;
}

// Instructions, with one of 32 threads active in each.
__global__ void divergent(float* to, int rounds) {
    float value = threadIdx.x;
    for (int i = 0; i < rounds; i++) {
        for (int lane = 0; lane < 32; lane++) {
            if (threadIdx.x % 32 == lane) {
#pragma unroll
                for (int k = 0; k < 8; k++) value = value * (1.0f + lane * 1e-6f) + k;
            }
            __syncwarp();
        }
    }
    if (value == 1234.5f) *to = value;
}

// The FP64 pipe.
__global__ void fp64(double* to, int rounds) {
    double a = threadIdx.x, b = 1, c = 2, d = 3;
    for (int i = 0; i < rounds; i++) {
        a = a * 1.0000001 + 1e-9, b = b * 1.0000001 + 1e-9, c = c * 1.0000001 + 1e-9, d = d * 1.0000001 + 1e-9;
    }
    if (a + b + c + d == 1234.5) *to = a;
}

// The FP32 pipe.
__global__ void fp32(float* to, int rounds) {
    float a = threadIdx.x, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7;
    for (int i = 0; i < rounds; i++) {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            a = a * 1.0000001f + 1e-9f, b = b * 1.0000001f + 1e-9f, c = c * 1.0000001f + 1e-9f, d = d * 1.0000001f + 1e-9f;
            e = e * 1.0000001f + 1e-9f, f = f * 1.0000001f + 1e-9f, g = g * 1.0000001f + 1e-9f, h = h * 1.0000001f + 1e-9f;
        }
    }
    if (a + b + c + d + e + f + g + h == 1234.5f) *to = a;
}

// The tensor pipe: products of registers. With few blocks: too small for the device.
__device__ __forceinline__ void multiply(float* to, int rounds) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> a;
    fragment<matrix_b, 16, 16, 16, __half, col_major> b;
    fragment<accumulator, 16, 16, 16, float> c[4];
    fill_fragment(a, __float2half(0.5f));
    fill_fragment(b, __float2half(0.5f));
    for (int k = 0; k < 4; k++) fill_fragment(c[k], 0.0f);
    for (int i = 0; i < rounds; i++)
        for (int k = 0; k < 4; k++) mma_sync(c[k], a, b, c[k]);
    float sum = c[0].x[0] + c[1].x[0] + c[2].x[0] + c[3].x[0];
    if (sum == 1234.5f) *to = sum;
}
__global__ void tensor_large(float* to, int rounds) { multiply(to, rounds); }
__global__ void tensor_tiny(float* to, int rounds) { multiply(to, rounds); }

// Atomic operations of the L2 cache, spread over 4,096 words.
__global__ void atomics(unsigned* to, int rounds) {
    unsigned at = threadIdx.x * 977 + blockIdx.x * 31;
    for (int i = 0; i < rounds; i++) {
        atomicAdd(&to[at % 4096 * 8], 1);
        at += 1021;
    }
}

// Latency: each load needs the result of the last one; one warp for each SM.
__global__ void latency_chain(unsigned* to, const unsigned* next, int rounds) {
    unsigned at = blockIdx.x * 32 + threadIdx.x;
    for (int i = 0; i < rounds; i++) at = next[at];
    if (at == 0xffffffff) *to = at;
}

// Occupancy: shared memory admits one small block for each SM, and each thread waits for memory most of the time.
__global__ void low_occupancy(float* to, const float* from, size_t mask, int rounds) {
    extern __shared__ float reserved[];
    size_t at = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 7919;
    float sum = 0;
    for (int i = 0; i < rounds; i++) {
        sum += from[(at + (size_t)i * 1048583) & mask];
        sum = sum * 1.5f + 1.0f;
        at += (sum > 1e30f);
    }
    reserved[threadIdx.x] = sum;
    if (sum == 1234.5f) *to = reserved[0];
}

// One block more than fits at a time: the second wave has one block.
__global__ void tail_wave(float* to, int rounds) {
    extern __shared__ float reserved[];
    float a = threadIdx.x, b = 1, c = 2, d = 3;
    for (int i = 0; i < rounds; i++) a = a * 1.0000001f + 1e-9f, b = b * 1.0000001f + 1e-9f, c = c * 1.0000001f + 1e-9f, d = d * 1.0000001f + 1e-9f;
    if (a + b + c + d == 1234.5f) *to = a + reserved[0];
}

// The L2 cache: 16 MiB are read again and again, too much for L1.
__global__ void l2_resident(float* to, const float4* from, size_t count, int rounds) {
    float sum = 0;
    for (int r = 0; r < rounds; r++)
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
            float4 value = __ldcg(&from[(i + r * 4099) % count]);
            sum += value.x + value.y + value.z + value.w;
        }
    if (sum == 1234.5f) *to = sum;
}

__global__ void link_chain(unsigned* next, unsigned count, unsigned stride) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) next[i] = (i + stride) % count;
}

int main(int argc, char** argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 20, sms = 0;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    const size_t large = 1ull << 30;
    float *from, *to;
    unsigned* next;
    CHECK(cudaMalloc(&from, large));
    CHECK(cudaMalloc(&to, large));
    CHECK(cudaMalloc(&next, 256 << 20));
    CHECK(cudaMemset(from, 0, large));
    CHECK(cudaMemset(to, 0, large));
    link_chain<<<1024, 256>>>(next, 64 << 20, 8191 * 67);
    const int wide = 160 << 10;
    CHECK(cudaFuncSetAttribute(low_occupancy, cudaFuncAttributeMaxDynamicSharedMemorySize, wide));
    CHECK(cudaFuncSetAttribute(tail_wave, cudaFuncAttributeMaxDynamicSharedMemorySize, wide));
    for (int i = 0; i < rounds; i++) {
        stream_copy<<<sms * 16, 256>>>((float4*)to, (const float4*)from, large / 16);
        strided<<<sms * 16, 256>>>(to, from, large / 32);
        random_gather<<<sms * 8, 256>>>(to, from, large / 4 - 1, 64);
        bank_conflicts<<<sms * 8, 256>>>(to, 2000);
        divergent<<<sms * 8, 256>>>(to, 20);
        fp64<<<sms * 8, 256>>>((double*)to, 2000);
        fp32<<<sms * 8, 256>>>(to, 2000);
        tensor_large<<<sms * 8, 256>>>(to, 2000);
        tensor_tiny<<<2, 256>>>(to, 8000);
        atomics<<<sms * 8, 256>>>((unsigned*)to, 200);
        latency_chain<<<sms, 32>>>((unsigned*)to, next, 400);
        low_occupancy<<<sms, 64, wide>>>(to, from, large / 4 - 1, 1000);
        tail_wave<<<sms + 1, 256, wide>>>(to, 40000);
        l2_resident<<<sms * 8, 256>>>(to, (const float4*)from, (16 << 20) / 16, 24);
    }
    CHECK(cudaDeviceSynchronize());
    std::puts("done");
    return 0;
}
