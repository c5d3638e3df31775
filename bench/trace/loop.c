/* Calls cuInit, which is cheap after the first call, in a loop and prints the cost of a call in nanoseconds.
 *   loop CALLS [THREADS]
 * libcuda is loaded by name: the real one, or the simulator's through LD_LIBRARY_PATH. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int (*init)(unsigned);
static long calls;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *work(void *unused) {
    for (long i = 0; i < calls; i++) init(0);
    return unused;
}

int main(int count, char **words) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    init = (int (*)(unsigned))dlsym(library, "cuInit");
    calls = count > 1 ? atol(words[1]) : 100000;
    int threads = count > 2 ? atoi(words[2]) : 1;
    if (threads < 1 || threads > 64 || init(0)) return 1;
    pthread_t started[64];
    double begun = now();
    for (int i = 0; i < threads; i++) pthread_create(&started[i], NULL, work, NULL);
    for (int i = 0; i < threads; i++) pthread_join(started[i], NULL);
    printf("ns_per_call %.1f\n", (now() - begun) / calls);
    return 0;
}
