/* A program that embeds Python, and closes it: launches kernels before and after.
 *
 *   embeds LIBRARY LAUNCHES */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

static char host[8], kernel[] = "work";

static void launch(int count) {
    for (int i = 0; i < count; i++)
        if (cudaLaunchKernel(host, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) exit(3);
    if (cudaDeviceSynchronize()) exit(3);
}

int main(int argc, char **argv) {
    void *python = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    void (*begin)(int) = python ? (void (*)(int))dlsym(python, "Py_InitializeEx") : NULL;
    int (*end)(void) = python ? (int (*)(void))dlsym(python, "Py_FinalizeEx") : NULL;
    if (!begin || !end) return 2;
    begin(0);
    __cudaRegisterFunction(__cudaRegisterFatBinary(NULL), host, kernel, kernel, -1, NULL, NULL, NULL, NULL, NULL);
    launch(atoi(argv[2]));
    if (end() || dlclose(python)) return 4;
    launch(atoi(argv[2]));
    puts(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) ? "kept" : "closed");
    return 0;
}
