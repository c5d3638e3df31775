/* Processes whose threads all make their first CUDA call at the same moment.
 *
 *   first ROUNDS THREADS    prints `ready`; then, ROUNDS times, forks a process in which THREADS threads wait for each other,
 *                           and each initialises CUDA and allocates 256, 512, 768 ... bytes, which it keeps. Prints `done` when
 *                           all have finished; the processes stay until its input ends. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda.h"

static atomic_int waiting;
/* Bound when the program is loaded, because binding at the first call would delay some threads. */
static CUresult (*volatile init)(unsigned) = cuInit;

static void *work(void *number) {
    CUcontext context;
    CUdeviceptr memory;

    /* The threads leave this loop within nanoseconds of each other, and the code is already in memory. */
    (void)*(volatile char *)(uintptr_t)init;
    atomic_fetch_sub(&waiting, 1);
    while (atomic_load(&waiting)) {}
    if (init(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) abort();
    if (cuMemAlloc_v2(&memory, 256 * (intptr_t)number)) abort();
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc == 3 ? atoi(argv[1]) : 0, count = argc == 3 ? atoi(argv[2]) : 0, done[2], stay[2];
    char byte;

    if (!rounds || !count || pipe(done) || pipe(stay)) return 2;
    puts("ready");
    fflush(stdout);
    for (int round = 0; round < rounds; round++) {
        pthread_t threads[count];
        pid_t child = fork();

        if (child < 0) return 2;
        if (child) {
            if (read(done[0], &byte, 1) != 1) return 1;
            continue;
        }
        close(stay[1]);
        atomic_store(&waiting, count);
        for (intptr_t i = 0; i < count; i++)
            if (pthread_create(&threads[i], NULL, work, (void *)(i + 1))) abort();
        for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
        if (write(done[1], "x", 1) != 1) abort();
        _exit(read(stay[0], &byte, 1) != 0);
    }
    puts("done");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
