/* Steps of GPU work, for the flight recorder. Commands are lines on stdin; the response to each is a line.
 *
 *   steps N      N steps: each launches the kernel `step I`, with I counted from 0, from `even_step` or `odd_step`, and waits
 *                for it. Prints `steps`, then for each its number and the times before the launch and after the wait.
 *   slow MS      `slow_step` sleeps MS milliseconds
 *   fail         a launch that fails
 * Exits at the end of its input. Prints `ready` when CUDA is initialised. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"

static CUmodule module;

static unsigned long long now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static void launch(int number) {
    char name[32];
    CUfunction function;

    snprintf(name, sizeof(name), "step %d", number);
    if (cuModuleGetFunction(&function, module, name) || cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) exit(1);
}

__attribute__((noinline)) void even_step(int number) {
    launch(number);
    if (cuCtxSynchronize()) exit(1);
}

__attribute__((noinline)) void odd_step(int number) {
    launch(number);
    if (cuCtxSynchronize()) exit(1);
}

__attribute__((noinline)) int slow_step(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};

    return nanosleep(&time, NULL);
}

int main(void) {
    CUcontext context;
    char line[64];
    int steps = 0;

    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuModuleLoadData(&module, "")) return 1;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (!strncmp(line, "steps ", 6)) {
            printf("steps");
            for (int i = atoi(line + 6); i > 0; i--, steps++) {
                unsigned long long start = now();

                if (steps % 2) odd_step(steps);
                else even_step(steps);
                printf(" %d %llu %llu", steps, start, now());
                nanosleep(&(struct timespec){0, 1000000}, NULL);
            }
            puts("");
        } else if (!strncmp(line, "slow ", 5)) {
            slow_step(atoi(line + 5));
            puts("slept");
        } else if (!strncmp(line, "fail", 4)) {
            puts(cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) ? "failed" : "did not fail");
        }
        fflush(stdout);
    }
    return 0;
}
