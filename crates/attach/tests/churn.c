// 16 threads that allocate and free, and sleep a little now and then. The main thread never waits in a system call.
// Writes "ready". For each byte of input it writes "alive" as soon as every thread has made progress, or "stuck N" if N threads
// have made none for 20 seconds. Ends with its input.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16, BLOCKS = 64 };

static atomic_ulong progress[THREADS];

static void *churn(void *argument) {
    size_t thread = (size_t)argument;
    unsigned seed = thread + 1;
    char *blocks[BLOCKS] = {0};
    struct timespec pause = {0, 200000};
    for (;;) {
        for (int i = 0; i < BLOCKS; i++) {
            int at = rand_r(&seed) % BLOCKS;
            size_t size = 1 + rand_r(&seed) % 2000;
            free(blocks[at]);
            blocks[at] = malloc(size);
            blocks[at][0] = blocks[at][size - 1] = 1;
        }
        progress[thread]++;
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static int stuck(void) {
    unsigned long before[THREADS];
    struct timespec now, since;
    for (int i = 0; i < THREADS; i++) before[i] = progress[i];
    clock_gettime(CLOCK_MONOTONIC, &since);
    for (;;) {
        int same = 0;
        for (int i = 0; i < THREADS; i++) same += before[i] == progress[i];
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (!same || now.tv_sec - since.tv_sec > 20) return same;
        sched_yield();
    }
}

int main(void) {
    pthread_t thread;
    char line[32], byte;
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, churn, (void *)i)) return 2;
    fcntl(0, F_SETFL, O_NONBLOCK);
    if (stuck() || write(1, "ready\n", 6) != 6) return 3;
    for (;;) {
        ssize_t got = read(0, &byte, 1);
        if (!got) _exit(0);
        if (got < 0) {
            sched_yield();
            continue;
        }
        int count = stuck();
        int size = count ? snprintf(line, sizeof line, "stuck %d\n", count) : snprintf(line, sizeof line, "alive\n");
        if (write(1, line, size) != size) return 4;
    }
}
