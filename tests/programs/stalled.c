/* Launches the kernel `gather` three times from first() and once from second(), and `plain` twice from third().
 *
 *   stalled [reset | init]     with `reset`, the context is destroyed before the end; with `init`, none is created */
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

CUresult cuDevicePrimaryCtxReset_v2(CUdevice);

static CUfunction gather, plain;

static void launch(CUfunction function) {
    if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) exit(1);
}

__attribute__((noinline)) void first(void) {
    for (int i = 0; i < 3; i++) launch(gather);
    __asm__ volatile("");
}

__attribute__((noinline)) void second(void) {
    launch(gather);
    __asm__ volatile("");
}

__attribute__((noinline)) void third(void) {
    for (int i = 0; i < 2; i++) launch(plain);
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    CUcontext context;
    CUmodule module;
    if (argc > 1 && !strcmp(argv[1], "init")) return cuInit(0);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, NULL) || cuModuleGetFunction(&gather, module, "gather") ||
        cuModuleGetFunction(&plain, module, "plain"))
        return 1;
    first();
    second();
    third();
    if (cuCtxSynchronize()) return 1;
    return argc > 1 ? cuDevicePrimaryCtxReset_v2(0) : 0;
}
