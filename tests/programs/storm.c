/* Calls at full speed, all threads at once.
 *
 *   storm THREADS CALLS [GO]   each thread makes CALLS calls: of every 10, one cuMemAlloc of far too much, which fails, one
 *                              cuMemcpyHtoD every 1,000, and cuCtxGetCurrent for the rest. With GO, prints `ready` and waits
 *                              until that file exists. Prints `done` at the end.
 * The n-th copy of a thread has n bytes; after 4,096 they start again from 1. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

static pthread_barrier_t barrier;
static int calls;
static CUcontext context;

static void *storm(void *unused) {
    static char host[4096];
    CUcontext current;
    CUdeviceptr memory, none;
    int copies = 0;
    if (cuCtxSetCurrent(context) || cuMemAlloc_v2(&memory, 4096)) exit(1);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < calls; i++) {
        if (i % 1000 == 0 ? cuMemcpyHtoD_v2(memory, host, copies++ % 4096 + 1)
            : i % 10 == 1 ? cuMemAlloc_v2(&none, (size_t)1 << 50) != 2
                          : cuCtxGetCurrent(&current))
            exit(1);
    }
    return unused;
}

int main(int argc, char **argv) {
    int count = argc > 2 ? atoi(argv[1]) : 0;
    if (count < 1 || count > 64) return 2;
    calls = atoi(argv[2]);
    pthread_t threads[64];
    pthread_barrier_init(&barrier, NULL, count + 1);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0)) return 1;
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, storm, NULL);
    if (argc > 3) {
        puts("ready");
        fflush(stdout);
        while (access(argv[3], F_OK)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
