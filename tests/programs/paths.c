/* Launches from many call paths with the same registers.
 *
 *   paths PATHS ROUNDS [RELOADS FIRST.so SECOND.so]
 *
 * LEVELS functions call each other, `step_0` or `step_1` on each level: the bits of a path's number, the highest one outermost. All
 * launches happen at the same stack pointer, and the kernel of path N is named `path_N`.
 *
 * Before, RELOADS times, one of two libraries is loaded in turn, calls back a function that launches the kernel `first_library` or
 * `second_library`, and is closed: warpscope must forget all stacks each time, and every path is launched again.
 *
 * Then all paths are launched in rounds, until a whole round was reported without the probe, and ROUNDS times more.
 * Prints `known after N` rounds; N is MOST if it never happened. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

enum { LEVELS = 10, MOST = 500 };

static char keys[(1 << LEVELS) + 2];
static int path;

static void step_0(int level);
static void step_1(int level);

__attribute__((noinline)) static void launch(int key) {
    if (cudaLaunchKernel(&keys[key], (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) exit(1);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void next(int level) {
    if (level < 0)
        launch(path);
    else if (path >> level & 1)
        step_1(level);
    else
        step_0(level);
}

__attribute__((noinline)) static void step_0(int level) {
    next(level - 1);
    __asm__ volatile("" ::"r"(&level) : "memory");
}

__attribute__((noinline)) static void step_1(int level) {
    next(level - 1);
    __asm__ volatile("# not folded into step_0" ::"r"(&level) : "memory");
}

/* All paths, not in the order of their numbers: 7919 is a prime. */
__attribute__((noinline)) static void all_paths(int paths, int round) {
    for (int i = 0; i < paths; i++) {
        path = (i * 7919 + round * 13) % paths;
        next(LEVELS - 1);
    }
    cudaDeviceSynchronize();
}

/* The start of warpscope's memory with this name. */
static volatile unsigned long *memory(const char *name) {
    char line[256];
    unsigned long start = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    while (maps && !start && fgets(line, sizeof line, maps))
        if (strstr(line, name)) start = strtoul(line, NULL, 16);
    if (maps) fclose(maps);
    return (unsigned long *)start;
}

static int library;

__attribute__((noinline)) static void called_back(void) {
    launch((1 << LEVELS) + library);
    __asm__ volatile("" ::: "memory");
}

static void reload(const char *file, const char *name) {
    void *loaded = dlopen(file, RTLD_NOW);
    void (*function)(void (*)(void)) = loaded ? (void (*)(void (*)(void)))dlsym(loaded, name) : NULL;
    if (!function) {
        fprintf(stderr, "paths: %s\n", dlerror());
        exit(2);
    }
    for (int i = 0; i < 5; i++) function(called_back);
    dlclose(loaded);
}

int main(int argc, char **argv) {
    static char names[(1 << LEVELS) + 2][16];
    static const char *const libraries[] = {"first_library", "second_library"};
    int paths = argc > 1 ? atoi(argv[1]) : 1, rounds = argc > 2 ? atoi(argv[2]) : 1, known = MOST;
    int reloads = argc > 5 ? atoi(argv[3]) : 0;
    void **handle = __cudaRegisterFatBinary(NULL);

    if (paths < 1 || paths > 1 << LEVELS) return 2;
    for (int key = 0; key < (1 << LEVELS) + 2; key++) {
        if (key >> LEVELS)
            strcpy(names[key], libraries[key & 1]);
        else
            snprintf(names[key], sizeof(names[key]), "path_%d", key);
        __cudaRegisterFunction(handle, &keys[key], names[key], names[key], -1, NULL, NULL, NULL, NULL, NULL);
    }
    __cudaRegisterFatBinaryEnd(handle);
    if (cudaFree(NULL)) return 1;
    volatile unsigned *generation = (unsigned *)memory("memfd:warpscope-stacks");
    volatile unsigned long *reported = memory("memfd:warpscope-launches");
    if (!generation || !reported) return 3;
    for (int count = 0; count < reloads; count++) {
        unsigned before = *generation;
        library = count & 1;
        reload(argv[4 + library], libraries[library]);
        /* The first one takes no address over. */
        for (int tries = 0; tries < 200 && count && *generation == before; tries++) usleep(1000);
        all_paths(paths, count);
    }
    /* One loop: another place that calls all_paths() would make other stacks. */
    for (int round = 0, left = rounds; left && round < MOST; round++) {
        unsigned long before = *reported;
        all_paths(paths, round);
        if (known < MOST)
            left--;
        else if (*reported - before == (unsigned long)paths)
            known = round;
        else
            usleep(2000);
    }
    printf("known after %d\n", known);
    return 0;
}
