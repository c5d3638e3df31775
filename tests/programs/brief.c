/* A short process: registers one kernel at its start, launches it N times without a pause, and exits.
 *
 *   brief N
 * Prints `ok` and exits 0 if every launch succeeded. Its host function has the kernel's own name, as with nvcc. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

__attribute__((noinline)) void _Z5firstPfi(void) { __asm__ volatile(""); }

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1;
    void **handle = __cudaRegisterFatBinary(NULL);

    __cudaRegisterFunction(handle, (void *)_Z5firstPfi, "first", "_Z5firstPfi", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
    for (int i = 0; i < count; i++)
        if (cudaLaunchKernel((void *)_Z5firstPfi, (dim3){4, 2, 1}, (dim3){64, 1, 1}, NULL, 0, NULL)) return 1;
    puts("ok");
    return 0;
}
