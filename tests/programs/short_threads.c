/* Threads that end at once, one after the other: each launches its own kernel, `thread N`, in an NVTX range of this name.
 *
 *   short_threads THREADS LAUNCHES [again]
 *
 *   again  all have the same id, in a pid namespace in which the program may choose ids */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "nvtx.h"

static int launches;
static pid_t last;

struct kernel {
    char name[32], host;
};

/* One path for all: only the first launch of each thread needs the probe. */
static void *work(void *argument) {
    struct kernel *kernel = argument;
    last = gettid();
    push(kernel->name);
    for (int i = 0; i < launches; i++)
        if (cudaLaunchKernel(&kernel->host, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) exit(3);
    pop();
    return NULL;
}

/* The next thread gets the id of the last one, which has ended. */
static void use_again(pid_t id) {
    char path[64];
    FILE *next = fopen("/proc/sys/kernel/ns_last_pid", "w");
    snprintf(path, sizeof path, "/proc/self/task/%d", id);
    while (!access(path, F_OK)) usleep(100);
    if (!next || fprintf(next, "%d", id - 1) < 0 || fclose(next)) exit(5);
}

int main(int argc, char **argv) {
    int threads = atoi(argv[1]), again = argc > 3;
    struct kernel *kernels = calloc((size_t)threads, sizeof *kernels);
    void **handle = __cudaRegisterFatBinary(NULL);
    pid_t first = 0;
    launches = atoi(argv[2]);
    initialise();
    for (int i = 0; i < threads; i++) {
        snprintf(kernels[i].name, sizeof kernels[i].name, "thread %d", i);
        __cudaRegisterFunction(handle, &kernels[i].host, kernels[i].name, kernels[i].name, -1, NULL, NULL, NULL, NULL, NULL);
    }
    __cudaRegisterFatBinaryEnd(handle);
    /* CUDA's own threads are there from now on. */
    if (cudaDeviceSynchronize()) return 2;
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (again && first) use_again(first);
        if (pthread_create(&thread, NULL, work, &kernels[i])) return 4;
        pthread_join(thread, NULL);
        if (!first) first = last;
        if (again && last != first) return 6;
    }
    return cudaDeviceSynchronize();
}
