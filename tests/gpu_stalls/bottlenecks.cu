// One kernel for each bottleneck, for `tests/gpu_stalls.py`. A comment of the form `bottleneck: STALL` marks the line that is meant
// to wait, and the stall that is expected there (`any`: no single line or stall). Argument: how often each kernel is launched.
#include <cstdio>
#include <cstdlib>
#include <mma.h>

using namespace nvcuda;
constexpr int SIZE = 1 << 24;

__global__ void strided(const float *in, float *out, int rounds) {
    unsigned at = (blockIdx.x * blockDim.x + threadIdx.x) * 4099u;
    float sum = 0;
    for (int i = 0; i < rounds; i++) {
        sum += in[at & (SIZE - 1)]; // bottleneck: long scoreboard | lg throttle
        at += 65537u * 33u;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void conflicts(float *out, int rounds) {
    __shared__ volatile float cells[32 * 32];
    int column = threadIdx.x % 32, row = threadIdx.x / 32;
    cells[column * 32 + row] = column;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < rounds; i++)
        sum += cells[column * 32 + ((int)sum & 31)]; // bottleneck: short scoreboard | mio throttle
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void dependent(float *out, int rounds) {
    float value = threadIdx.x;
    for (int i = 0; i < rounds; i++)
        value = value * 1.0001f + 0.5f; // bottleneck: wait
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void barrier(float *out, int rounds) {
    __shared__ float cell;
    float value = threadIdx.x;
    for (int i = 0; i < rounds; i++) {
        if (threadIdx.x < 32)
            for (int j = 0; j < 400; j++)
                value = value * 1.0001f + 0.5f;
        if (threadIdx.x == 0)
            cell = value;
        __syncthreads(); // bottleneck: barrier
        value += cell;
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void divergent(float *out, int rounds) {
    float value = threadIdx.x;
    for (int i = 0; i < rounds; i++)
        switch ((threadIdx.x + i) % 8) { // bottleneck: any
        case 0: value = __sinf(value); break;
        case 1: value = __cosf(value); break;
        case 2: value = __expf(-value * value); break;
        case 3: value = rsqrtf(value * value + 1); break;
        case 4: value = value * 0.5f + 3; break;
        case 5: value = fabsf(value - 1); break;
        case 6: value = __logf(value * value + 2); break;
        default: value = -value;
        }
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void tensor(const half *a, const half *b, float *out, int rounds) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4];
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    for (int j = 0; j < 4; j++)
        wmma::fill_fragment(sums[j], 0.0f);
    for (int i = 0; i < rounds; i++)
        for (int j = 0; j < 4; j++)
            wmma::mma_sync(sums[j], left, right, sums[j]); // bottleneck: math pipe throttle
    wmma::store_matrix_sync(out, sums[0], 16, wmma::mem_row_major);
    if (sums[1].x[0] + sums[2].x[0] + sums[3].x[0] == 1e30f)
        out[0] = 1;
}

__global__ void tiny(const float *in, float *out, int rounds) {
    int at = threadIdx.x;
    for (int i = 0; i < rounds; i++)
        at = ((int)in[at] + at * 7919 + 12345) & (SIZE - 1); // bottleneck: long scoreboard
    out[threadIdx.x] = at;
}

int main(int argc, char **argv) {
    int launches = argc > 1 ? atoi(argv[1]) : 40;
    float *in, *out;
    half *halves;
    if (cudaMalloc(&in, SIZE * sizeof(float)) || cudaMalloc(&out, SIZE * sizeof(float)) || cudaMalloc(&halves, 4096))
        return 1;
    cudaMemset(in, 0, SIZE * sizeof(float));
    cudaMemset(halves, 0, 4096);
    for (int i = 0; i < launches; i++) {
        strided<<<1056, 256>>>(in, out, 2000);
        conflicts<<<1056, 256>>>(out, 4000);
        dependent<<<132, 128>>>(out, 400000);
        barrier<<<1056, 256>>>(out, 100);
        divergent<<<1056, 256>>>(out, 2000);
        tensor<<<1056, 256>>>(halves, halves, out, 4000);
        tiny<<<1, 32>>>(in, out, 4000);
    }
    cudaError_t error = cudaDeviceSynchronize();
    if (error)
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return error != 0;
}
