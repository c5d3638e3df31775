/* A program with kernels as nvcc builds it: a constructor registers the host function of each kernel with its name, and the
 * program launches kernels, two of the first for one of the second, until its standard input ends: by these functions, or,
 * with the argument "handles", by handles that it requested once and keeps, as code compiled by nvcc 13 does; or, with
 * "driver", by such handles and without the runtime's launch function.
 *
 * Writes "ready" when it has launched both kernels. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "cuda.h"

/* nvcc's mark, and its description of the embedded GPU code. */
static struct { int magic, version; const void *data; void *unused; } wrapper
    __attribute__((section(".nvFatBinSegment"), used)) = {0x466243b1, 1, "", NULL};

/* The names that nvcc and clang give the host functions of `scale(float *, int)` and of a C kernel. */
static void scale(void) asm("_Z25__device_stub__Z5scalePfiPfi");
__attribute__((noinline)) static void scale(void) { asm volatile("nop" ::: "memory"); }
__attribute__((noinline)) static void plain_sum(void) { asm volatile("nop; nop" ::: "memory"); }

/* The names of the variables in which these functions keep their handles. */
static cudaKernel_t scale_handle asm("_ZZL25__device_stub__Z5scalePfiPfiE8__handle");
static cudaKernel_t plain_sum_handle asm("_ZZL24__device_stub__plain_sumvE8__handle");

__attribute__((constructor)) static void register_all(void) {
    void **handle = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(handle, (const char *)scale, "_Z5scalePfi", "_Z5scalePfi", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, (const char *)plain_sum, "plain_sum", "plain_sum", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
}

static void check(int error) {
    if (error) _exit(1);
}

static const dim3 one = {1, 1, 1};

static void launch_by_driver(cudaKernel_t *kept, const char *name) {
    CUmodule module;
    if (!*kept) {
        check(cudaFree(NULL));
        check(cuModuleLoadData(&module, NULL));
        check(cuModuleGetFunction((CUfunction *)kept, module, name));
    }
    check(cuLaunchKernel((CUfunction)*kept, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static void launch_scale(char by) {
    if (by == 'd') return launch_by_driver(&scale_handle, "_Z5scalePfi");
    if (by != 'h') return check(cudaLaunchKernel((const void *)scale, one, one, NULL, 0, NULL));
    if (!scale_handle) check(__cudaGetKernel(&scale_handle, (const void *)scale));
    check(__cudaLaunchKernel(scale_handle, one, one, NULL, 0, NULL));
}

static void launch_plain_sum(char by) {
    if (by == 'd') return launch_by_driver(&plain_sum_handle, "plain_sum");
    if (by != 'h') return check(cudaLaunchKernel((const void *)plain_sum, one, one, NULL, 0, NULL));
    if (!plain_sum_handle) check(__cudaGetKernel(&plain_sum_handle, (const void *)plain_sum));
    check(__cudaLaunchKernel(plain_sum_handle, one, one, NULL, 0, NULL));
}

int main(int arguments, char **argument) {
    struct pollfd input = {0, POLLIN, 0};
    char by = arguments > 1 ? argument[1][0] : 0;
    launch_scale(by);
    launch_plain_sum(by);
    puts("ready");
    fflush(stdout);
    while (poll(&input, 1, 1) == 0) {
        launch_scale(by);
        launch_scale(by);
        launch_plain_sum(by);
    }
    return 0;
}
