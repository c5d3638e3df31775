// Lets paths.cu run on the simulated GPU: the prototypes it needs, and a launch like that of nvcc's host code.
#pragma once
#include <cstddef>
typedef struct CUstream_st *cudaStream_t;
struct dim3 {
    unsigned x, y, z;
};
extern "C" {
int cudaStreamCreate(cudaStream_t *);
int cudaStreamSynchronize(cudaStream_t);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, dim3 *, dim3 *, int *);
}
static void nothing() {}
static const struct {
    unsigned magic;
    unsigned short version, header_size;
    unsigned long long size;
} no_code = {0xba55ed50u, 1, 16, 0};
static struct {
    int magic, version;
    const void *data;
    void *more;
} image = {0x466243b1, 1, &no_code, nullptr};
__attribute__((constructor)) static void register_kernel() {
    static char name[] = "_Z7nothingi";
    void **handle = __cudaRegisterFatBinary(&image);
    __cudaRegisterFunction(handle, (const char *)nothing, name, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(handle);
}
static void launch(cudaStream_t stream) {
    int argument = 0;
    void *arguments[] = {&argument};
    cudaLaunchKernel((const void *)nothing, {1, 1, 1}, {32, 1, 1}, arguments, 0, stream);
}
