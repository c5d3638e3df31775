/* A stand-in for PyTorch's libc10_cuda.so: a caching allocator that divides segments into blocks by the same rules, with the
 * same static tracepoints (semaphores, argument formats, two places of `free`), and that counts what it has allocated. */
#include <pthread.h>
#include <stdlib.h>

#include "../cuda.h"

#define MIB ((size_t)1 << 20)

__asm__(".section .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n.previous");
__attribute__((section(".probes"), used)) volatile unsigned short malloc_semaphore;
__attribute__((section(".probes"), used)) volatile unsigned short free_semaphore;
#define POINT(name, semaphore, arguments, ...)                                                                       \
    __asm__ volatile("990: nop\n.pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n"                                \
                     ".4byte 992f-991f, 994f-993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n"                        \
                     "993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte " semaphore "\n"                                 \
                     ".asciz \"pytorch\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n994: .balign 4\n.popsection" ::__VA_ARGS__)

struct block {
    char *start;
    size_t size;
    int used, device;
    struct block *before, *after; /* neighbours in the segment */
    struct block *next; /* in the list of all */
};
static struct block *blocks;
static struct { size_t allocated, peak, reserved; } devices[2];
static size_t failures, failed[2]; /* what was allocated and reserved on the device when the driver had no room last */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct block *add(char *start, size_t size, int device) {
    struct block *block = calloc(1, sizeof *block);
    block->start = start, block->size = size, block->device = device, block->next = blocks;
    return blocks = block;
}

/* The smallest free block that is large enough, of the pool that the size belongs to. */
static struct block *find(size_t size, int device) {
    struct block *best = NULL;
    for (struct block *b = blocks; b; b = b->next) {
        struct block *first = b;
        size_t segment = 0;
        while (first->before) first = first->before;
        for (struct block *part = first; part; part = part->after) segment += part->size;
        if (b->used || b->size < size || b->device != device || (segment == 2 * MIB) != (size <= MIB)) continue;
        if (!best || b->size < best->size || (b->size == best->size && b->start < best->start)) best = b;
    }
    return best;
}

static void empty_cache(void);

static int reserve(void **memory, size_t segment, int device) {
    if (!cudaMalloc(memory, segment)) return 1;
    failures++, failed[0] = devices[device].allocated, failed[1] = devices[device].reserved;
    return 0;
}

static struct block *take(size_t size, int device) {
    size_t segment = size <= MIB ? 2 * MIB : size < 10 * MIB ? 20 * MIB : (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    struct block *block = find(size, device), *rest;
    if (!block) {
        void *memory;
        if (!reserve(&memory, segment, device)) {
            empty_cache();
            if (!reserve(&memory, segment, device)) return NULL;
        }
        devices[device].reserved += segment;
        block = add(memory, segment, device);
    }
    if (block->size - size >= (size <= MIB ? 512 : MIB + 1)) {
        rest = add(block->start + size, block->size - size, device);
        rest->before = block, rest->after = block->after;
        if (rest->after) rest->after->before = rest;
        block->after = rest, block->size = size;
    }
    block->used = 1;
    devices[device].allocated += block->size;
    if (devices[device].allocated > devices[device].peak) devices[device].peak = devices[device].allocated;
    return block;
}

static void unlink_block(struct block *gone) {
    struct block **at = &blocks;
    while (*at != gone) at = &(*at)->next;
    *at = gone->next;
    free(gone);
}

/* Merges a block with the free one after it. */
static void merge(struct block *block) {
    struct block *after = block ? block->after : NULL;
    if (!after || block->used || after->used) return;
    block->size += after->size, block->after = after->after;
    if (after->after) after->after->before = block;
    unlink_block(after);
}

static void release(void *memory) {
    struct block *block = blocks;
    pthread_mutex_lock(&mutex);
    while (block->start != memory) block = block->next;
    block->used = 0;
    devices[block->device].allocated -= block->size;
    merge(block);
    merge(block->before);
    pthread_mutex_unlock(&mutex);
}

void *c10_malloc(size_t bytes, int number) {
    register void *memory __asm__("rax");
    register char device __asm__("dl");
    register size_t size __asm__("r14");
    struct block *block;
    char *start;
    long stream = 7;
    pthread_mutex_lock(&mutex);
    block = take((bytes + 511) / 512 * 512, number);
    start = block ? block->start : NULL;
    pthread_mutex_unlock(&mutex);
    if (!start) return NULL;
    if (malloc_semaphore) {
        memory = start, device = number, size = bytes;
        POINT("malloc", "malloc_semaphore", "-8@%%rax -1@%%dl -8@%%r14 -8@%3", "r"(memory), "r"(device), "r"(size), "m"(stream));
    }
    return start;
}

void c10_free(void *memory) {
    register void *at __asm__("rdi") = memory;
    if (free_semaphore) POINT("free", "free_semaphore", "-8@%%rdi", "r"(at));
    release(memory);
}

/* The second place. */
void c10_delete(void *memory) {
    register void *at __asm__("rbx") = memory;
    if (free_semaphore) POINT("free", "free_semaphore", "-8@%%rbx", "r"(at));
    release(memory);
}

/* Returns all segments that are free to the driver. */
static void empty_cache(void) {
    for (struct block *block = blocks, *next; block; block = next) {
        next = block->next;
        if (block->used || block->before || block->after) continue;
        if (cudaFree(block->start)) abort();
        devices[block->device].reserved -= block->size;
        unlink_block(block);
    }
}

void c10_empty_cache(void) {
    pthread_mutex_lock(&mutex);
    empty_cache();
    pthread_mutex_unlock(&mutex);
}

size_t c10_failures(void) { return failures; }
size_t c10_failed(int what) { return failed[what]; }
size_t c10_allocated(int device) { return devices[device].allocated; }
size_t c10_peak(int device) { return devices[device].peak; }
size_t c10_reserved(int device) { return devices[device].reserved; }

/* Memory of another library. */
void *other_library(size_t bytes) {
    void *memory;
    if (cudaMalloc(&memory, bytes)) abort();
    return memory;
}
