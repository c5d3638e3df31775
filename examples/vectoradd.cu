// Vector addition in three kernels, launched by three host functions.
//
//     vectoradd [ITERATIONS]        default 1000
//
// Each iteration computes c = a + b, then c = 2c, then the sum of each block of c.
// A flame graph shows every kernel under the host function that launches it.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

// Keeps a host function as a separate frame.
#define FRAME __attribute__((noinline))

#define CHECK(call) check((call), #call, __LINE__)

static void check(cudaError_t result, const char* call, int line)
{
    if (result != cudaSuccess) {
        std::fprintf(stderr, "vectoradd.cu:%d: %s failed: %s\n", line, call, cudaGetErrorString(result));
        std::exit(1);
    }
}

constexpr int kThreads = 256;
constexpr int kCount = 1 << 20;
constexpr int kBlocks = kCount / kThreads;
static_assert(kCount % kThreads == 0, "every thread has one element");

__global__ void add_kernel(const float* a, const float* b, float* c, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        c[i] = a[i] + b[i];
}

__global__ void scale_kernel(float* c, float factor, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        c[i] *= factor;
}

// Every block adds its own kThreads elements; the order of the additions is fixed.
__global__ void block_sum_kernel(const float* c, float* sums)
{
    __shared__ float partial[kThreads];
    partial[threadIdx.x] = c[blockIdx.x * kThreads + threadIdx.x];
    __syncthreads();
    for (unsigned half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = partial[0];
}

struct Vectors {
    float* a;
    float* b;
    float* c;
    float* sums;
};

FRAME void add_vectors(const Vectors& v)
{
    add_kernel<<<kBlocks, kThreads>>>(v.a, v.b, v.c, kCount);
    CHECK(cudaGetLastError());
}

FRAME void scale_vector(const Vectors& v, float factor)
{
    scale_kernel<<<kBlocks, kThreads>>>(v.c, factor, kCount);
    CHECK(cudaGetLastError());
}

FRAME void sum_blocks(const Vectors& v)
{
    block_sum_kernel<<<kBlocks, kThreads>>>(v.c, v.sums);
    CHECK(cudaGetLastError());
}

FRAME void compute(const Vectors& v, int iterations)
{
    for (int i = 0; i < iterations; i++) {
        add_vectors(v);
        scale_vector(v, 2.0f);
        sum_blocks(v);
    }
    CHECK(cudaDeviceSynchronize());
}

FRAME Vectors upload(const std::vector<float>& a, const std::vector<float>& b)
{
    Vectors v = {};
    size_t bytes = kCount * sizeof(float);
    CHECK(cudaMalloc(&v.a, bytes));
    CHECK(cudaMalloc(&v.b, bytes));
    CHECK(cudaMalloc(&v.c, bytes));
    CHECK(cudaMalloc(&v.sums, kBlocks * sizeof(float)));
    CHECK(cudaMemcpy(v.a, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(v.b, b.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(v.c, 0, bytes));
    return v;
}

// The inputs are small integers, so float sums are exact and can be compared with ==.
FRAME int verify(const Vectors& v, const std::vector<float>& a, const std::vector<float>& b)
{
    std::vector<float> c(kCount), sums(kBlocks);
    CHECK(cudaMemcpy(c.data(), v.c, kCount * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(sums.data(), v.sums, kBlocks * sizeof(float), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int block = 0; block < kBlocks; block++) {
        float sum = 0;
        for (int i = block * kThreads; i < (block + 1) * kThreads; i++) {
            float expected = 2.0f * (a[i] + b[i]);
            wrong += c[i] != expected;
            sum += expected;
        }
        wrong += sums[block] != sum;
    }
    return wrong;
}

int main(int argc, char** argv)
{
    char* end = nullptr;
    long iterations = argc > 1 ? std::strtol(argv[1], &end, 10) : 1000;
    if (argc > 2 || (end && *end) || iterations < 1 || iterations > 100000000) {
        std::fprintf(stderr, "usage: vectoradd [ITERATIONS]\n");
        return 2;
    }
    std::vector<float> a(kCount), b(kCount);
    for (int i = 0; i < kCount; i++) {
        a[i] = float(i % 1000);
        b[i] = float(i % 77);
    }
    Vectors v = upload(a, b);
    compute(v, int(iterations));
    int wrong = verify(v, a, b);
    for (float* pointer : {v.a, v.b, v.c, v.sums})
        CHECK(cudaFree(pointer));
    std::printf("%ld iterations of %d elements: %d wrong\n", iterations, kCount, wrong);
    return wrong ? 1 : 0;
}
