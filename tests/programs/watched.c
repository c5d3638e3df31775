/* A program that executes commands, to be watched by the monitor. Commands are lines on stdin; the response to each is `done`.
 *
 *   work          a fixed workload, whose totals are in the comment at `work`
 *   leak N        N allocations of 1 MiB that are never freed, in `forget_to_free`, line LEAK_LINE
 *   free          frees the allocations of `leak`
 *   hoard N       N allocations of 16 bytes that are never freed
 *   launch N      N launches of the runtime's kernel `_Z5firstPfi`
 *   repeat N      N times the same two launches, by the runtime and by the driver, with a lookup of the latter's kernel; then 5
 *                 of each that fail, because their blocks are too large
 *   kernels N     N distinct kernels, k0 to kN, each launched once by its handle
 *   wait          prints `calling`, then waits for the GPU: forever, if the script makes cudaDeviceSynchronize slow
 *   fork          a child that makes one call and exits
 *   exec          executes itself again in this process
 * Exits at the end of its input. Prints `ready` when CUDA is initialised. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

#define LEAK_LINE 30

static char host[1 << 16], first_stub, second_stub;
static void *leaked[4096];
static int leaks;

static void expect(int expected, int got, const char *call) {
    if (expected == got) return;
    fprintf(stderr, "watched: %s gave %d, not %d\n", call, got, expected);
    exit(1);
}
#define EXPECT(expected, call) expect(expected, call, #call)

__attribute__((noinline)) static void forget_to_free(void) {
#line LEAK_LINE
    EXPECT(0, cudaMalloc(&leaked[leaks], 1 << 20));
    leaks++;
}

__attribute__((noinline)) static void load_model(int count) {
    for (int i = 0; i < count; i++) forget_to_free();
    if (leaks < 0) abort();
}

static void hoard(int count) {
    void *memory;

    for (int i = 0; i < count; i++) EXPECT(0, cudaMalloc(&memory, 16));
}

static void *free_it(void *memory) {
    EXPECT(0, cudaFree(memory));
    return NULL;
}

static void launch(const void *stub, int times) {
    for (int i = 0; i < times; i++) EXPECT(0, cudaLaunchKernel(stub, (dim3){4, 2, 1}, (dim3){64, 1, 1}, NULL, 0, NULL));
}

/* device: 5 allocations of 15,000 bytes and one of 64 by the driver; 4 frees, one of them on another thread; live 2,064 bytes
 *         in 2; peak 15,000; 2 failed
 * managed: 1 of 12,288, live; host: 1 of 8,192, freed
 * copies: HtoD 4,096 + 64 + 36 synchronous, 1,024 asynchronous; DtoH 2,048; DtoD 512 asynchronous; one failed; memset 512 + 16
 * launches: first 7, second 3, by the driver 2; errors: cudaMalloc 2 (and cuMemAlloc within), cudaMemcpy 1 */
__attribute__((noinline)) static void work(void) {
    void *memory[5], *pinned, *managed, *none;
    pthread_t thread;
    CUdeviceptr driver;
    CUmodule module;
    CUfunction function;

    for (int i = 0; i < 5; i++) EXPECT(0, cudaMalloc(&memory[i], 1000 * (i + 1)));
    EXPECT(0, cudaMallocManaged(&managed, 12288, 1));
    EXPECT(0, cudaMallocHost(&pinned, 8192));
    for (int i = 0; i < 2; i++) EXPECT(2, cudaMalloc(&none, (size_t)1 << 50));
    EXPECT(0, cudaMemcpy(memory[4], host, 4096, cudaMemcpyHostToDevice));
    EXPECT(0, cudaMemcpyAsync(memory[4], host, 1024, cudaMemcpyHostToDevice, NULL));
    EXPECT(0, cudaMemcpy(host, memory[4], 2048, cudaMemcpyDeviceToHost));
    EXPECT(0, cudaMemcpyAsync(memory[3], memory[4], 512, cudaMemcpyDeviceToDevice, NULL));
    expect(1, cudaMemcpy(memory[4], host, 4096, 77) != 0, "a copy in no direction fails");
    EXPECT(0, cudaMemset(memory[4], 7, 512));
    EXPECT(0, cudaMemsetAsync(memory[4], 7, 16, NULL));
    launch(&first_stub, 7);
    launch(&second_stub, 3);
    EXPECT(0, cuModuleLoadData(&module, ""));
    EXPECT(0, cuModuleGetFunction(&function, module, "by_driver"));
    for (int i = 0; i < 2; i++) EXPECT(0, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    EXPECT(0, cudaDeviceSynchronize());
    EXPECT(0, cudaFreeHost(pinned));
    pthread_create(&thread, NULL, free_it, memory[4]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 4; i++)
        if (i != 1) EXPECT(0, cudaFree(memory[i]));
    EXPECT(0, cuMemAlloc_v2(&driver, 64));
    EXPECT(0, cuMemcpyHtoD_v2(driver, host, 64));
    EXPECT(0, cuMemcpyHtoD_v2(driver, host, 36));
}

static void kernels(int first, int count) {
    CUmodule module;
    CUfunction function;
    char name[32];

    EXPECT(0, cuModuleLoadData(&module, ""));
    for (int i = first; i < first + count; i++) {
        sprintf(name, "k%d", i);
        EXPECT(0, cuModuleGetFunction(&function, module, name));
        EXPECT(0, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    }
}

static void repeat(int count) {
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;

    EXPECT(0, cuLibraryLoadData(&library, "", NULL, NULL, 0, NULL, NULL, 0));
    EXPECT(0, cuLibraryGetKernel(&kernel, library, "repeated"));
    for (int i = 0; i < count; i++) {
        launch(&first_stub, 1);
        EXPECT(0, cuKernelGetFunction(&function, kernel));
        EXPECT(0, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    }
    for (int i = 0; i < 5; i++) {
        expect(1, cudaLaunchKernel(&first_stub, (dim3){4, 2, 1}, (dim3){2048, 1, 1}, NULL, 0, NULL) != 0, "too large a block");
        expect(1, cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL) != 0, "too large a block");
    }
}

int main(int argc, char **argv) {
    char line[64];
    int number, count;
    void **handle = __cudaRegisterFatBinary(NULL);

    __cudaRegisterFunction(handle, &first_stub, "first", "_Z5firstPfi", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, &second_stub, "second", "second", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
    EXPECT(0, cudaGetDeviceCount(&count));
    setvbuf(stdin, NULL, _IONBF, 0);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        number = strchr(line, ' ') ? atoi(strchr(line, ' ')) : 0;
        if (!strncmp(line, "work", 4)) work();
        else if (!strncmp(line, "leak", 4)) load_model(number);
        else if (!strncmp(line, "free", 4)) while (leaks) EXPECT(0, cudaFree(leaked[--leaks]));
        else if (!strncmp(line, "hoard", 5)) hoard(number);
        else if (!strncmp(line, "launch", 6)) launch(&first_stub, number);
        else if (!strncmp(line, "repeat", 6)) repeat(number);
        else if (!strncmp(line, "kernels", 7)) kernels(0, number);
        else if (!strncmp(line, "kernel ", 7)) kernels(number, 1);
        else if (!strncmp(line, "wait", 4)) {
            puts("calling");
            fflush(stdout);
            EXPECT(0, cudaDeviceSynchronize());
        } else if (!strncmp(line, "fork", 4)) {
            pid_t child = fork();
            if (!child) _exit(cudaGetDeviceCount(&count));
            waitpid(child, NULL, 0);
        } else if (!strncmp(line, "exec", 4)) execv("/proc/self/exe", argv);
        puts("done");
        fflush(stdout);
    }
    return argc - argc;
}
