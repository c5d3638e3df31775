/* A GPU that is idle for known reasons, each in a function of its own.
 *
 *   idle ROUNDS   launches a kernel and waits for it; then ROUNDS times: naps for 5 ms, computes for 5 ms of CPU time, and
 *                 launches and waits again */
#include <stdlib.h>
#include <time.h>

#include "cuda.h"

static CUfunction function;

__attribute__((noinline)) static void nap(void) {
    struct timespec left = {0, 5000000};
    while (nanosleep(&left, &left)) {}
}

static long cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) static void compute(void) {
    long end = cpu_time() + 5000000;
    while (cpu_time() < end) {}
}

__attribute__((noinline)) static void feed(void) {
    if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) || cuCtxSynchronize()) exit(1);
}

int main(int argc, char **argv) {
    CUcontext context;
    CUmodule module;

    if (argc < 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, "") || cuModuleGetFunction(&function, module, "work")) return 1;
    feed();
    for (int round = 0; round < atoi(argv[1]); round++) {
        nap();
        compute();
        feed();
    }
    return 0;
}
