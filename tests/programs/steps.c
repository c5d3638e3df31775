/* A program with one cause of its time for each of its arguments.
 *
 *   steps ROUNDS LOAD_MS MIB   allocates MIB MiB of GPU memory; then ROUNDS times: loads for LOAD_MS ms of CPU time, launches
 *                              a kernel and waits for it */
#include <stdlib.h>
#include <time.h>

#include "cuda.h"

static long cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) static void load(int ms) {
    long end = cpu_time() + ms * 1000000L;
    while (cpu_time() < end) {}
}

__attribute__((noinline)) static void allocate(int mib) {
    CUdeviceptr memory;
    if (cuMemAlloc_v2(&memory, (size_t)mib << 20)) exit(1);
}

__attribute__((noinline)) static void train(CUfunction function) {
    if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) || cudaDeviceSynchronize()) exit(1);
}

int main(int argc, char **argv) {
    CUcontext context;
    CUmodule module;
    CUfunction function;

    if (argc < 4 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, "") || cuModuleGetFunction(&function, module, "work")) return 1;
    allocate(atoi(argv[3]));
    for (int round = 0; round < atoi(argv[1]); round++) {
        load(atoi(argv[2]));
        train(function);
    }
    return 0;
}
