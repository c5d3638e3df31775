/* A small library, built by the tests that need it, and a program that loads it late and calls it.
 *
 *   tiny LIBRARY STOP [later]   loads LIBRARY and calls tiny_add(i, 1000 + i) for i = 1, 2 ... until STOP exists, then 50 times
 *                               more; prints `ready` after the first and `last N` at the end. With `later`, it waits for a
 *                               byte on stdin before it loads. */
#ifdef LIBRARY
__attribute__((noinline)) long tiny_add(long a, long b) {
    __asm__ volatile("");
#ifdef REPLACED
    return a - b;
#else
    return a + b;
#endif
}
#else
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    char byte;
    if (argc > 3 && read(0, &byte, 1) != 1) return 2;
    void *library = dlopen(argv[1], RTLD_NOW);
    long (*add)(long, long) = library ? (long (*)(long, long))dlsym(library, "tiny_add") : NULL;
    if (!add) {
        fprintf(stderr, "tiny: %s\n", dlerror());
        return 2;
    }
    long i = 0, more = 50;
    while (access(argv[2], F_OK) || more--) {
        if (i++, add(i, 1000 + i) != 1000 + 2 * i) return 1;
        if (i == 1) puts("ready"), fflush(stdout);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    printf("last %ld\n", i);
    return 0;
}
#endif
