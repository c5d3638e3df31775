/* A fixed sequence of runtime and driver calls, one of which fails, for tests that compare call by call.
 *
 *   runtime: cudaMalloc, cudaMemcpy (HtoD 4096), cudaLaunchKernel x3 ("calls_runtime"), cudaMemset (512),
 *            cudaMemcpyAsync (DtoH 2048), cudaMalloc of far too much (fails), cudaDeviceSynchronize, cudaFree
 *   driver:  cuMemAlloc, cuMemcpyHtoD (1024), cuLaunchKernel x2 ("calls_driver"), cuStreamSynchronize, cuMemFree
 * Prints `ok` and exits 0 if every result is the expected one. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

static char host[4096];

static void expect(int expected, int got, const char *call) {
    if (expected == got) return;
    fprintf(stderr, "calls: %s gave %d, not %d\n", call, got, expected);
    exit(1);
}
#define EXPECT(expected, call) expect(expected, call, #call)

__attribute__((noinline)) static void use_runtime(void) {
    static char key;
    void *memory, *none;
    void **handle = __cudaRegisterFatBinary(NULL);
    __cudaRegisterFunction(handle, &key, "calls_runtime", "calls_runtime", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
    EXPECT(0, cudaMalloc(&memory, sizeof host));
    EXPECT(0, cudaMemcpy(memory, host, 4096, cudaMemcpyHostToDevice));
    for (int i = 0; i < 3; i++)
        EXPECT(0, cudaLaunchKernel(&key, (dim3){4, 2, 1}, (dim3){64, 1, 1}, NULL, 256, NULL));
    EXPECT(0, cudaMemset(memory, 7, 512));
    EXPECT(0, cudaMemcpyAsync(host, memory, 2048, cudaMemcpyDeviceToHost, NULL));
    EXPECT(2, cudaMalloc(&none, (size_t)1 << 50));
    EXPECT(2, cudaGetLastError());
    EXPECT(0, cudaGetLastError());
    EXPECT(0, cudaDeviceSynchronize());
    EXPECT(0, cudaFree(memory));
    if (host[0] != 7 || host[511] != 7 || host[512] != 0) expect(0, 1, "the memset's bytes came back");
}

__attribute__((noinline)) static void use_driver(void) {
    CUdeviceptr memory;
    CUmodule module;
    CUfunction function;
    EXPECT(0, cuModuleLoadData(&module, ""));
    EXPECT(0, cuModuleGetFunction(&function, module, "calls_driver"));
    EXPECT(0, cuMemAlloc_v2(&memory, 1024));
    EXPECT(0, cuMemcpyHtoD_v2(memory, host, 1024));
    for (int i = 0; i < 2; i++) EXPECT(0, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    EXPECT(0, cuStreamSynchronize(NULL));
    EXPECT(0, cuMemFree_v2(memory));
}

int main(void) {
    use_runtime();
    use_driver();
    puts("ok");
    return 0;
}
