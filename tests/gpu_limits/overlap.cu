// A long kernel of FP32 arithmetic on one stream, and small ones on another, which would run at the same time.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void busy(float* to, int rounds) {
    float a = threadIdx.x;
    for (int i = 0; i < rounds; i++) a = a * 1.0001f + 1;
    if (a == 1234.5f) *to = a;
}
__global__ void small(float* to) {
    if (to && threadIdx.x > 5000) *to = 1;
}
int main() {
    cudaStream_t a, b;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    for (int i = 0; i < 400; i++) {
        busy<<<528, 256, 0, a>>>(nullptr, 100000);
        small<<<8, 32, 0, b>>>(nullptr);
    }
    cudaDeviceSynchronize();
    std::puts(cudaGetErrorString(cudaGetLastError()));
}
