/* Shared code of the matrix programs. Each runs its cases in one of two modes:
 *
 *   PROGRAM launch ROUNDS    ACT launches a kernel whose name is the call path, ROUNDS times for each case
 *   PROGRAM busy SECONDS     ACT works for a moment in `spin` instead, until the time is over
 *
 * A path is the expected stack: the functions from the outermost on, separated by `;`. `name*N` means N frames of that name,
 * `@system` some frames of the C library, the loader or the vdso, `@std` some frames of the language's own library. With
 * `cut|` before it, the path is too long to be kept; with `bare|` its outermost function has no unwind information, and is not
 * marked as the outermost. The last line of the output is `launched N`. */
#ifndef MATRIX_H
#define MATRIX_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __clang__
#define CASE __attribute__((noinline))
#else
#define CASE __attribute__((noipa))
#endif
/* Has no frame of its own. */
#define INLINE static inline __attribute__((always_inline))
/* Prevents a tail call before this. */
#define KEEP __asm__ volatile("" ::: "memory")

/* The outermost functions of this thread's stack. */
#define ROOT_MAIN "_start;@system;main"
#define ROOT_THREAD "@system;worker"
static __thread const char *root = ROOT_MAIN;

static int busy;
static long rounds, launched;
static double until;

#ifndef SPINS
#define SPINS 200
#endif
CASE static void spin(void) {
    for (volatile int i = 0; i < SPINS; i++) {
    }
}

INLINE double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

#ifdef WITHOUT_CUDA
#define ACT(path) \
    do {          \
        spin();   \
        KEEP;     \
    } while (0)
INLINE void enter_thread(void) {}
INLINE void start_cuda(void) {}
INLINE void end_cuda(void) {}
#else
#ifdef __cplusplus
extern "C" {
#endif
#include "../cuda.h"
#ifdef __cplusplus
}
#endif

static CUcontext context;
static CUmodule module;

/* The kernel for a path from this thread's root, cached by the path's address. */
CASE static CUfunction kernel(const char *path) {
    static __thread struct {
        const char *root, *path;
        CUfunction function;
    } known[64];
    char name[1024];
    int i = 0;
    while (known[i].path && (known[i].path != path || known[i].root != root)) i++;
    if (!known[i].path) {
        const char *cut = strncmp(path, "cut|", 4) ? "" : "cut|";
        snprintf(name, sizeof name, "%s%s%s%s", cut, root, path[strlen(cut)] ? ";" : "", path + strlen(cut));
        if (cuModuleGetFunction(&known[i].function, module, name)) abort();
        known[i].root = root;
        known[i].path = path;
    }
    return known[i].function;
}

#define ACT(path)                                                                                      \
    do {                                                                                               \
        if (busy) {                                                                                    \
            spin();                                                                                    \
        } else {                                                                                       \
            if (cuLaunchKernel(kernel(path), 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) abort();          \
            __atomic_fetch_add(&launched, 1, __ATOMIC_RELAXED);                                        \
        }                                                                                              \
        KEEP;                                                                                          \
    } while (0)

INLINE void enter_thread(void) {
    if (!busy && cuCtxSetCurrent(context)) abort();
}

INLINE void start_cuda(void) {
    if (busy) return;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) abort();
    if (cuModuleLoadData(&module, "")) abort();
}

INLINE void end_cuda(void) {
    if (!busy && cuCtxSynchronize()) abort();
}
#endif

INLINE void start(int argc, char **argv) {
    if (argc < 3) abort();
    busy = !strcmp(argv[1], "busy");
    if (busy)
        until = now() + atof(argv[2]);
    else
        rounds = atol(argv[2]);
    start_cuda();
}

/* Whether there is another round. */
INLINE int again(void) {
    return busy ? now() < until : rounds-- > 0;
}

INLINE int end(void) {
    end_cuda();
    printf("launched %ld\n", launched);
    return 0;
}

#endif
