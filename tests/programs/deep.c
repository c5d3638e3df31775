/* Launches kernels at the end of a recursion.
 *
 *   deep DEPTH COUNT [CALLS]   calls `recurse` DEPTH levels deep, and launches COUNT kernels there */
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

static char host[8], name[] = "deep";

static int launch(int count) {
    dim3 one = {1, 1, 1};

    for (int i = 0; i < count; i++)
        if (cudaLaunchKernel(host, one, one, NULL, 0, NULL)) return 1;
    return 0;
}

/* The assembly makes each level a call of its own. */
__attribute__((noinline, noclone)) static int recurse(int depth, int count) {
    int failed = depth > 1 ? recurse(depth - 1, count) : launch(count);

    __asm__ volatile("" : "+r"(failed));
    return failed;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    __cudaRegisterFunction(__cudaRegisterFatBinary(NULL), host, name, name, -1, NULL, NULL, NULL, NULL, NULL);
    if (recurse(atoi(argv[1]), atoi(argv[2]))) return 1;
    if (cudaDeviceSynchronize()) return 1;
    puts("done");
    return 0;
}
