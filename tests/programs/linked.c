/* A program with its own statically linked runtime, as nvcc builds it by default: cudaMalloc, cudaFree and cudaLaunchKernel are
 * the program's own functions, and make no driver calls. Calls them 30, 20 and 10 times; `doze` sleeps 20 ms, 5 times. */
#include <stddef.h>
#include <stdio.h>
#include <time.h>

typedef struct { unsigned x, y, z; } dim3;

__attribute__((noinline)) int cudaMalloc(void **ptr, size_t size) {
    *ptr = (void *)(0x7000000 + size);
    return size > 1 << 20 ? 2 : 0;
}

__attribute__((noinline)) int cudaFree(void *ptr) {
    __asm__ volatile("");
    return ptr ? 0 : 1;
}

__attribute__((noinline)) int cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, void *stream) {
    __asm__ volatile("" ::"r"(stub), "r"(args), "r"(stream));
    return grid.x + block.x + shared == 0;
}

__attribute__((noinline)) static int not_cuda(int i) {
    __asm__ volatile("");
    return i + 1;
}

__attribute__((noinline)) void doze(void) {
    nanosleep(&(struct timespec){0, 20000000}, NULL);
}

int main(void) {
    int sum = 0;
    void *ptr;
    for (int i = 1; i <= 30; i++) sum += cudaMalloc(&ptr, 64 * i);
    for (int i = 1; i <= 20; i++) sum += cudaFree(ptr);
    for (unsigned i = 1; i <= 10; i++) sum += cudaLaunchKernel(&sum, (dim3){i, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL);
    for (int i = 0; i < 7; i++) sum += not_cuda(-1);
    for (int i = 0; i < 5; i++) doze();
    printf("%d\n", sum);
    return 0;
}
