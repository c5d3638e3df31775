/* Launches from a library that is loaded late. The tests that need the library build it with -DLIBRARY.
 *
 *   late LIBRARY GO STOP   prints `ready`; once GO exists, loads LIBRARY, launches 200 kernels named `late` from late_inner, called
 *                          by late_outer, and prints `launched`; exits once STOP exists. */
#include "cuda.h"

#ifdef LIBRARY
static char key;

__attribute__((noinline)) static int late_inner(void) {
    int result = cudaLaunchKernel(&key, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL);
    __asm__ volatile("" ::: "memory");
    return result;
}

__attribute__((noinline)) int late_outer(void) {
    int result = late_inner();
    __asm__ volatile("" ::: "memory");
    return result;
}

__attribute__((constructor)) static void registers(void) {
    void **handle = __cudaRegisterFatBinary(NULL);
    __cudaRegisterFunction(handle, &key, "late", "late", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
}
#else
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void wait_for(const char *file) {
    while (access(file, F_OK)) nanosleep(&(struct timespec){0, 1000000}, NULL);
}

int main(int argc, char **argv) {
    if (argc < 4 || cudaFree(NULL)) return 2;
    puts("ready"), fflush(stdout);
    wait_for(argv[2]);
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*outer)(void) = library ? (int (*)(void))dlsym(library, "late_outer") : NULL;
    if (!outer) {
        fprintf(stderr, "late: %s\n", dlerror());
        return 2;
    }
    for (int i = 0; i < 200; i++)
        if (outer()) return 1;
    puts("launched"), fflush(stdout);
    wait_for(argv[3]);
    return 0;
}
#endif
