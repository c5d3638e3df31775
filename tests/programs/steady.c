/* Calls at a steady rate.
 *
 *   steady SECONDS RATE GO   prints `ready`, waits until the file GO exists, then makes RATE calls in each of SECONDS seconds,
 *                            in a hundred bursts: of every 10 calls a cuMemAlloc, a cuMemFree, a cuLaunchKernel of "steady"
 *                            and a cuMemcpyHtoD of 8 bytes, the rest cuCtxGetCurrent. Prints `done`, then waits for the end of input. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

static char host[8];

int main(int argc, char **argv) {
    CUcontext context, current;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory, passing;
    struct timespec next;

    if (argc < 4 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, "") || cuModuleGetFunction(&function, module, "steady")) return 1;
    if (cuMemAlloc_v2(&memory, 8)) return 1;
    puts("ready");
    fflush(stdout);
    while (access(argv[3], F_OK)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (int burst = 0; burst < 100 * atoi(argv[1]); burst++) {
        for (int i = 0; i < atoi(argv[2]) / 100; i++) {
            int failed = i % 10 == 0   ? cuMemAlloc_v2(&passing, 64)
                         : i % 10 == 1 ? cuMemFree_v2(passing)
                         : i % 10 == 2 ? cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)
                         : i % 10 == 3 ? cuMemcpyHtoD_v2(memory, host, 8)
                                       : cuCtxGetCurrent(&current);
            if (failed) return 1;
        }
        next.tv_nsec += 10000000;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    puts("done");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
