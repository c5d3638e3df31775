/* Launches many kernels while warpscope reads nothing.
 *
 *   unread KERNELS LAUNCHES BEGUN GO DONE END
 *
 * Launches once, creates the file BEGUN, and once GO exists makes LAUNCHES launches of KERNELS kernels in turn; then creates DONE, and
 * exits once END exists. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

enum { MOST = 4096 };

static char keys[MOST];

static void create(const char *file) {
    close(open(file, O_CREAT | O_WRONLY, 0666));
}

static void wait_for(const char *file) {
    while (access(file, F_OK)) nanosleep(&(struct timespec){0, 1000000}, NULL);
}

__attribute__((noinline)) static void launch(int kernel) {
    if (cudaLaunchKernel(&keys[kernel], (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) exit(1);
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
    static char names[MOST][24];
    int kernels = argc > 6 ? atoi(argv[1]) : 0;
    void **handle = __cudaRegisterFatBinary(NULL);

    if (kernels < 1 || kernels > MOST) return 2;
    for (int kernel = 0; kernel < kernels; kernel++) {
        snprintf(names[kernel], sizeof(names[kernel]), "kernel_%d", kernel);
        __cudaRegisterFunction(handle, &keys[kernel], names[kernel], names[kernel], -1, NULL, NULL, NULL, NULL, NULL);
    }
    __cudaRegisterFatBinaryEnd(handle);
    launch(0);
    create(argv[3]);
    wait_for(argv[4]);
    for (long made = 0; made < atol(argv[2]); made++) launch(made % kernels);
    if (cudaDeviceSynchronize()) return 1;
    create(argv[5]);
    wait_for(argv[6]);
    return 0;
}
