/* Stacks that differ in a single word, at every depth.
 *
 *   alike ROUNDS [wide | deep]
 *
 * Two functions with the same frame call each other DEPTH levels deep. In path 0 every level is `step_a`; in path N, level N is
 * `step_b`. All launches happen at the same stack pointer, and the kernel of path N is named `differs_N`.
 * With `wide` there is a frame of 200 KiB at the outer end of every stack, with `deep` there are 300 frames.
 * After each round it waits a moment for the first stack to become known: until then every launch is walked. A stack that
 * warpscope itself walked, because it did not have the unwind tables in time, does not become known. Prints `known after N`
 * rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

enum { DEPTH = 40 };

static char keys[DEPTH + 1];
static int differs;

static void step_a(int level);
static void step_b(int level);

__attribute__((noinline)) static void next(int level) {
    if (level > DEPTH) {
        if (cudaLaunchKernel(&keys[differs], (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) exit(1);
    } else if (level == differs) {
        step_b(level);
    } else {
        step_a(level);
    }
}

__attribute__((noinline)) static void step_a(int level) {
    next(level + 1);
    __asm__ volatile("" ::"r"(&level) : "memory");
}

__attribute__((noinline)) static void step_b(int level) {
    next(level + 1);
    __asm__ volatile("# not folded into step_a" ::"r"(&level) : "memory");
}

__attribute__((noinline)) static void large_frame(void) {
    char room[200 << 10];

    __asm__ volatile("" ::"r"(room) : "memory");
    next(1);
    __asm__ volatile("" ::"r"(room) : "memory");
}

__attribute__((noinline)) static void descend(int frames) {
    if (frames > 1)
        descend(frames - 1);
    else
        next(1);
    __asm__ volatile("" ::"r"(&frames) : "memory");
}

/* Whether the memory in which warpscope publishes known stacks has one: the root of their tree, in its second word, is not 0. */
static int any_known(void) {
    char line[256];
    unsigned long start = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    while (maps && !start && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:warpscope-stacks")) start = strtoul(line, NULL, 16);
    if (maps) fclose(maps);
    return start && ((volatile unsigned long *)start)[1];
}

int main(int argc, char **argv) {
    static char names[DEPTH + 1][16];
    void **handle = __cudaRegisterFatBinary(NULL);
    for (int path = 0; path <= DEPTH; path++) {
        snprintf(names[path], sizeof(names[path]), "differs_%d", path);
        __cudaRegisterFunction(handle, &keys[path], names[path], names[path], -1, NULL, NULL, NULL, NULL, NULL);
    }
    __cudaRegisterFatBinaryEnd(handle);
    int wide = argc > 2 && !strcmp(argv[2], "wide"), deep = argc > 2 && !strcmp(argv[2], "deep");
    long rounds = argc > 1 ? atol(argv[1]) : 1, known = 0;
    for (long round = 1; round <= rounds; round++) {
        for (differs = 0; differs <= DEPTH; differs++)
            deep ? descend(300) : wide ? large_frame() : next(1);
        cudaDeviceSynchronize();
        for (int tries = 0; !known && tries < 20; tries++) {
            usleep(1000);
            if (any_known()) known = round;
        }
    }
    printf("known after %ld\n", known ? known : rounds);
    return 0;
}
