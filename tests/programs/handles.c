/* A program that launches its own kernels through the runtime, and those of a library, such as cuBLAS, by driver handles that the
 * library requested once and keeps on the heap. Each kernel is launched with a different grid width, which identifies it in the
 * trace.
 *
 *     handles functions|handles|both KERNELS [swapped AT|hostile]
 *
 * The first argument says how the first KERNELS (at most 4) of its own kernels are launched, grids of 1 to 4: by host function, for
 * which the runtime uses a CUfunction, by a CUkernel that it requested once, as code compiled by nvcc 13 does, or both. The
 * library's kernels have these grids:
 *
 *     11, 12   a CUfunction                     13, 14   a CUkernel, launched as such
 *     15       a CUkernel whose function is looked up for each launch, as cuBLAS does
 *
 * With "swapped" the words at offset AT of the objects behind the CUfunctions of two of its own kernels are exchanged. With
 * "hostile" the objects of the library's kernels are overwritten, except for the first word, with pointers to
 * nowhere, to endless text, to text that is no name, and to each other.
 *
 * Writes "ready" when it has launched all kernels, and launches them until its standard input ends. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"

#define OWN 4
#define KEPT 5
#define OBJECT 128

/* nvcc's mark, and its description of the embedded GPU code. */
static struct { int magic, version; const void *data; void *unused; } wrapper
    __attribute__((section(".nvFatBinSegment"), used)) = {0x466243b1, 1, "", NULL};

/* Host functions; that of a template has the name that the host's compiler gives it. */
static void scale(void) asm("_Z25__device_stub__Z5scalePfiPfi");
static void reduce(void) asm("_Z6reduceIfEvPT_");
__attribute__((noinline)) static void scale(void) { asm volatile("nop" ::: "memory"); }
__attribute__((noinline)) static void plain_sum(void) { asm volatile("nop; nop" ::: "memory"); }
__attribute__((noinline)) static void reduce(void) { asm volatile("nop; nop; nop" ::: "memory"); }
__attribute__((noinline)) static void copy(void) { asm volatile("nop; nop; nop; nop" ::: "memory"); }

static cudaKernel_t scale_handle asm("_ZZL25__device_stub__Z5scalePfiPfiE8__handle");
static cudaKernel_t plain_sum_handle asm("_ZZL24__device_stub__plain_sumvE8__handle");
static cudaKernel_t reduce_handle asm("_ZZL30__device_stub__Z6reduceIiEvPT_PiE8__handle");
static cudaKernel_t copy_handle asm("_ZZL19__device_stub__copyvE8__handle");

__attribute__((constructor)) static void register_all(void) {
    void **handle = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(handle, (const char *)scale, "_Z5scalePfi", "_Z5scalePfi", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, (const char *)plain_sum, "plain_sum", "plain_sum", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, (const char *)reduce, "_Z6reduceIiEvPT_", "_Z6reduceIiEvPT_", -1, NULL, NULL, NULL, NULL,
                           NULL);
    __cudaRegisterFunction(handle, (const char *)copy, "copy", "copy", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
}

static const char *const own_names[OWN] = {"_Z5scalePfi", "plain_sum", "_Z6reduceIiEvPT_", "copy"};
static const char *const kept_names[KEPT] = {"_Z4gemmPKfS0_Pf", "sgemm_32x32", "_Z4gemvPKfPf", "splitk_reduce", "_Z4axpyfPf"};

/* On the heap, where no symbol leads to them. */
static struct { CUmodule module; CUlibrary library; CUfunction function[2]; CUkernel kernel[3]; } *kept;

static int check(int error) {
    if (error) _exit(1);
    return 0;
}

/* nvcc generates such code for each kernel: it contains the addresses of the handle and of the host function. */
#define GET(kernel) (kernel##_handle ? 0 : check(__cudaGetKernel(&kernel##_handle, (const void *)kernel)), kernel##_handle)

static cudaKernel_t handle_of(int at) {
    switch (at) {
    case 0: return GET(scale);
    case 1: return GET(plain_sum);
    case 2: return GET(reduce);
    default: return GET(copy);
    }
}

static void launch_own(int at, char by) {
    static const void *const functions[OWN] = {(void *)scale, (void *)plain_sum, (void *)reduce, (void *)copy};
    const dim3 grid = {at + 1, 1, 1}, block = {1, 1, 1};
    if (by != 'h') check(cudaLaunchKernel(functions[at], grid, block, NULL, 0, NULL));
    if (by != 'f') check(__cudaLaunchKernel(handle_of(at), grid, block, NULL, 0, NULL));
}

static void launch(CUfunction function, unsigned grid) {
    check(cuLaunchKernel(function, grid, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static void launch_kept(void) {
    CUfunction function;
    launch(kept->function[0], 11);
    launch(kept->function[1], 12);
    launch((CUfunction)kept->kernel[0], 13);
    launch((CUfunction)kept->kernel[1], 14);
    check(cuKernelGetFunction(&function, kept->kernel[2]));
    launch(function, 15);
}

static void request_kept(void) {
    kept = malloc(sizeof(*kept));
    check(cudaFree(NULL));
    check(cuModuleLoadData(&kept->module, NULL));
    check(cuLibraryLoadData(&kept->library, NULL, NULL, NULL, 0, NULL, NULL, 0));
    for (int i = 0; i < 2; i++) check(cuModuleGetFunction(&kept->function[i], kept->module, kept_names[i]));
    for (int i = 0; i < 3; i++) check(cuLibraryGetKernel(&kept->kernel[i], kept->library, kept_names[2 + i]));
}

static void swap_names(size_t at) {
    void **object[2];
    for (int i = 0; i < 2; i++) check(cuModuleGetFunction((CUfunction *)&object[i], kept->module, own_names[i]));
    void *first = object[0][at / 8];
    object[0][at / 8] = object[1][at / 8];
    object[1][at / 8] = first;
}

static void overwrite(void *handle) {
    static char *endless;
    if (!endless) {
        endless = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(endless, 'A', 64 << 20);
    }
    const void *garbage[] = {endless, "two words", "\033[2Jevil", "", (void *)8, (void *)-1, (void *)0xffff800000000000,
                             (char *)handle + 8, (void *)0x7ffffffff000, "/lib/libcuda.so"};
    void **object = handle;
    for (size_t i = 1; i < OBJECT; i++) object[i] = (void *)garbage[(i + (size_t)handle / 16) % (sizeof(garbage) / sizeof(*garbage))];
}

int main(int arguments, char **argument) {
    struct pollfd input = {0, POLLIN, 0};
    char by = argument[1][0];
    int count = atoi(argument[2]);
    request_kept();
    for (int i = 0; i < count; i++) launch_own(i, by);
    launch_kept();
    if (arguments > 4 && argument[3][0] == 's') swap_names(strtoul(argument[4], NULL, 0));
    if (arguments > 3 && argument[3][0] == 'h') {
        CUfunction function;
        for (int i = 0; i < 2; i++) overwrite(kept->function[i]);
        check(cuKernelGetFunction(&function, kept->kernel[2]));
        overwrite(function);
        for (int i = 0; i < 3; i++) overwrite(kept->kernel[i]);
    }
    puts("ready");
    fflush(stdout);
    while (poll(&input, 1, 1) == 0) {
        for (int i = 0; i < count; i++) launch_own(i, by);
        launch_kept();
    }
    return 0;
}
