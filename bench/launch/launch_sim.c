/* The launch loop on the simulated GPU. Built by any C compiler and linked with the simulator's libcudart:
 * the kernel is registered by hand, as nvcc's generated code would. loop.h documents the arguments. */

#include <stddef.h>

#include "loop.h"

typedef struct {
    unsigned x, y, z;
} dim3;

typedef struct {
    int magic;
    int version;
    const void *data;
    void *reserved;
} FatBinaryWrapper;

extern void **__cudaRegisterFatBinary(void *wrapper);
extern void __cudaRegisterFatBinaryEnd(void **handle);
extern void __cudaUnregisterFatBinary(void **handle);
extern void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *device_name,
                                   int thread_limit, void *tid, void *bid, void *block, void *grid, int *warp_size);
extern int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream);
extern int cudaDeviceSynchronize(void);

/* A fat binary's header without contents: the simulator runs no code. */
static const struct {
    unsigned magic;
    unsigned short version, header_size;
    unsigned long long size;
} no_code = {0xba55ed50u, 1, 16, 0};
static FatBinaryWrapper wrapper = {0x466243b1, 1, &no_code, NULL};

/* Its address identifies the kernel, like the address of nvcc's host function. */
static void empty_kernel(void) {}

static void check(int result, const char *call)
{
    if (result != 0) {
        fprintf(stderr, "launch: %s failed: error %d\n", call, result);
        exit(1);
    }
}

static void launch_once(void)
{
    dim3 one = {1, 1, 1};
    check(cudaLaunchKernel((const void *)empty_kernel, one, one, NULL, 0, NULL), "cudaLaunchKernel");
}

static void wait_for_gpu(void)
{
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static void **handle;

/* Like nvcc's generated code, in a program and in a library. */
__attribute__((constructor)) static void register_kernel(void)
{
    static char name[] = "_Z12empty_kernelv";
    handle = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(handle, (const char *)empty_kernel, name, name, -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
}

__attribute__((destructor)) static void unregister_kernel(void)
{
    __cudaUnregisterFatBinary(handle);
}

int main(int argc, char **argv)
{
    return run(argc, argv);
}
