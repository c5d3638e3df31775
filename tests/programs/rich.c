/* A bit of everything, on two threads: sleeps, CPU time, kernels, memsets, copies that block and copies that do not, waits and
 * GPU memory.
 *
 *   rich ROUNDS */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "cuda.h"

#define BYTES (1 << 20)

static CUcontext context;
static CUfunction function;
static int rounds;

static long cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) static void nap(void) {
    struct timespec left = {0, 1000000};
    while (nanosleep(&left, &left)) {}
}

__attribute__((noinline)) static void compute(void) {
    long end = cpu_time() + 2000000;
    while (cpu_time() < end) {}
}

__attribute__((noinline)) static void launch(void *memory, const char *bytes) {
    if (cudaMemcpyAsync(memory, bytes, 64, cudaMemcpyHostToDevice, NULL) || cudaMemset(memory, 0, 4096)) exit(1);
    if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) || cudaDeviceSynchronize()) exit(1);
}

__attribute__((noinline)) static void copy(void *memory, char *bytes) {
    if (cudaMemcpy(memory, bytes, BYTES, cudaMemcpyHostToDevice)) exit(1);
    if (cudaMemcpy(bytes, memory, BYTES, cudaMemcpyDeviceToHost)) exit(1);
}

static void *work(void *unused) {
    void *memory;
    char *bytes = calloc(1, BYTES);
    (void)unused;
    if (cuCtxSetCurrent(context) || cudaMalloc(&memory, BYTES)) exit(1);
    for (int round = 0; round < rounds; round++) {
        nap();
        compute();
        copy(memory, bytes);
        launch(memory, bytes);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CUmodule module;
    pthread_t thread;

    rounds = argc > 1 ? atoi(argv[1]) : 1;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, "") || cuModuleGetFunction(&function, module, "work")) return 1;
    if (pthread_create(&thread, NULL, work, NULL)) return 1;
    work(NULL);
    return pthread_join(thread, NULL);
}
