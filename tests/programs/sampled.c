/* Launches the same kernels from several call paths in known proportions.
 *
 *   sampled THREADS LAUNCHES [SYNC]
 *
 * Each thread makes LAUNCHES launches. Of ten launches, the kernel `first` comes seven times from `often`, twice from
 * `seldom` and once from `rarely`; after every second one of them, `second` comes from `rarely`. Each thread waits for the
 * GPU after every SYNC launches (1,000 if not given). */
#include <pthread.h>
#include <stdlib.h>

#include "cuda.h"

static char first, second;
static long launches, sync_every = 1000;

__attribute__((noinline)) static void launch(char *kernel) {
    if (cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) exit(1);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void often(char *kernel) {
    launch(kernel);
    __asm__ volatile("# often" ::: "memory");
}

__attribute__((noinline)) static void seldom(char *kernel) {
    launch(kernel);
    __asm__ volatile("# seldom" ::: "memory");
}

__attribute__((noinline)) static void rarely(char *kernel) {
    launch(kernel);
    __asm__ volatile("# rarely" ::: "memory");
}

static void *work(void *unused) {
    static void (*const paths[10])(char *) = {often,  often, seldom, often, often,
                                              rarely, often, seldom, often, often};

    for (long made = 0, turn = 0; made < launches; turn++) {
        paths[turn % 10](&first);
        made++;
        if (turn % 2 && made < launches) {
            rarely(&second);
            made++;
        }
        if (made % sync_every < 2) cudaDeviceSynchronize();
    }
    return unused;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t all[64];
    void **handle = __cudaRegisterFatBinary(NULL);

    launches = argc > 2 ? atol(argv[2]) : 1000;
    if (argc > 3) sync_every = atol(argv[3]);
    __cudaRegisterFunction(handle, &first, "first", "first", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, &second, "second", "second", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
    for (int thread = 0; thread < threads && thread < 64; thread++) pthread_create(&all[thread], NULL, work, NULL);
    for (int thread = 0; thread < threads && thread < 64; thread++) pthread_join(all[thread], NULL);
    return cudaDeviceSynchronize();
}
