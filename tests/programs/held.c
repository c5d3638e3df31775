/* Holds GPU memory: the most in the middle, and some at the end. */
#include <stdlib.h>

#include "cuda.h"

__attribute__((always_inline)) inline
static void *allocate(size_t bytes, int pool) {
    void *memory;
    if (pool ? cudaMallocAsync(&memory, bytes, NULL) : cudaMalloc(&memory, bytes)) exit(1);
    return memory;
}
#define NOINLINE __attribute__((noinline))
#define allocate(bytes, pool) ({ void *made = allocate(bytes, pool); __asm__ volatile("" : "+r"(made)); made; })

NOINLINE void weights(void **memory) {
    memory[0] = allocate(5 << 20, 0);
    memory[1] = allocate(100, 1);
}

NOINLINE void buffers(void **memory) {
    for (int i = 0; i < 3; i++) memory[i] = allocate(1 << 20, i & 1);
}

NOINLINE void late(void **memory) { *memory = allocate(9000, 0); }

int main(void) {
    void *held[2], *more[3], *last;
    weights(held);
    buffers(more);
    for (int i = 0; i < 3; i++)
        if (i & 1 ? cudaFreeAsync(more[i], NULL) : cudaFree(more[i])) return 1;
    if (cudaFree(held[1])) return 1;
    late(&last);
    return 0;
}
