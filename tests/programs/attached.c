/* Threads that launch kernels and check their own results, for recordings that come and go.
 *
 *   attached THREADS
 *
 * Writes "ready" when every thread has launched, and runs until its standard input ends. Every kernel is named after the call
 * path that launches it. Each thread checks the results of its calls, its own arithmetic and the time that it sleeps. At the
 * end it writes `launched N`, or exits with 1 and a message as soon as something is wrong. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

enum { MOST = 64, BATCH = 4 };

static atomic_int stop, ready;
static atomic_long launched;
static CUfunction first, second;
static CUcontext context;

static void die(const char *what, long got) {
    fprintf(stderr, "attached: wrong %s: %ld\n", what, got);
    _exit(1);
}

static inline __attribute__((always_inline)) void launch(CUfunction function, CUstream stream) {
    int error = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    if (error) die("result", error);
    launched++;
}

__attribute__((noinline)) static void leaf0(CUstream stream) {
    launch(first, stream);
    asm volatile("");
}

__attribute__((noinline)) static void leaf1(CUstream stream) {
    launch(second, stream);
    asm volatile("");
}

__attribute__((noinline)) static void a(CUstream stream) {
    leaf0(stream);
    asm volatile("");
}

__attribute__((noinline)) static void b(CUstream stream) {
    leaf1(stream);
    asm volatile("");
}

static void rest(void) {
    struct timespec time = {0, 10000000}, before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    int result = clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    clock_gettime(CLOCK_MONOTONIC, &after);
    if (result) die("result of a sleep", result);
    if ((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec < 10000000) die("short sleep", 0);
}

static void *worker(void *unused) {
    CUstream stream;
    (void)unused;
    if (cuCtxSetCurrent(context) || cuStreamCreate(&stream, 0)) die("stream", 0);
    for (long round = 0; !stop; round++) {
        double sum = 0;
        for (int i = 0; i < BATCH; i++) {
            if (i & 1) a(stream);
            else b(stream);
            sum += i * 0.5;
        }
        if (sum != 3.0) die("sum", (long)sum);
        if (!round) ready++;
        rest();
    }
    if (cuStreamSynchronize(stream)) die("synchronisation", 0);
    return NULL;
}

int main(int count, char **arguments) {
    int threads = count > 1 ? atoi(arguments[1]) : 1;
    pthread_t thread[MOST];
    CUmodule module;
    char byte;
    if (threads < 1 || threads > MOST) return 2;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) die("device", 0);
    if (cuModuleLoadData(&module, "module")) die("module", 0);
    if (cuModuleGetFunction(&first, module, "truth:worker>a>leaf0")) die("function", 0);
    if (cuModuleGetFunction(&second, module, "truth:worker>b>leaf1")) die("function", 1);
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, worker, NULL);
    while (ready < threads) usleep(1000);
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    stop = 1;
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    printf("launched %ld\n", launched);
    return 0;
}
