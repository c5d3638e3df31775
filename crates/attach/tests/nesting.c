// An allocator with nested locks: `malloc` waits for the inner one, of all threads, while it holds the outer one, of its thread.
// A thread that waits so can never allocate again until it gets the inner lock. With SLEEPS the inner lock is waited for with
// nanosleep instead of futex.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { CLASSES = 20, SMALLEST = 5, CHUNK = 1 << 22 };

// In front of every block: 16 bytes. The class of a large block is CLASSES.
struct block {
    size_t class, offset;
};

static __thread pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
static void *unused[CLASSES];
static char *next, *end;

#ifdef SLEEPS
static atomic_flag inner = ATOMIC_FLAG_INIT;

static void lock_inner(void) {
    struct timespec pause = {0, 100000};
    while (atomic_flag_test_and_set(&inner)) nanosleep(&pause, NULL);
}

static void unlock_inner(void) {
    static int count;
    struct timespec pause = {0, 1000000};
    // It keeps the others waiting now and then, as when memory is returned to the kernel.
    if (++count % 64 == 0) nanosleep(&pause, NULL);
    atomic_flag_clear(&inner);
}
#else
static pthread_mutex_t inner = PTHREAD_MUTEX_INITIALIZER;

static void lock_inner(void) { pthread_mutex_lock(&inner); }

static void unlock_inner(void) { pthread_mutex_unlock(&inner); }
#endif

static void *fresh(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *malloc(size_t size) {
    size_t class = 0;
    while (class < CLASSES && size + sizeof(struct block) > (size_t)1 << (class + SMALLEST)) class++;
    size_t whole = (size_t)1 << (class + SMALLEST);
    char *memory;
    if (class == CLASSES) {
        memory = fresh(size + sizeof(struct block));
    } else {
        pthread_mutex_lock(&outer);
        lock_inner();
        memory = unused[class];
        if (memory) {
            unused[class] = *(void **)(memory + sizeof(struct block));
        } else {
            if ((size_t)(end - next) < whole) next = fresh(CHUNK), end = next + CHUNK;
            memory = next;
            next += whole;
        }
        unlock_inner();
        pthread_mutex_unlock(&outer);
    }
    if (!memory) return NULL;
    *(struct block *)memory = (struct block){class, 0};
    return memory + sizeof(struct block);
}

void free(void *memory) {
    if (!memory) return;
    struct block *block = (struct block *)memory - 1;
    if (block->class >= CLASSES) return; // large blocks are not reused
    block = (struct block *)((char *)block - block->offset);
    lock_inner();
    *(void **)(block + 1) = unused[block->class];
    unused[block->class] = block;
    for (volatile int i = 0; i < 2000; i++) {}
    unlock_inner();
}

void *calloc(size_t count, size_t size) {
    void *memory = malloc(count * size);
    return memory ? memset(memory, 0, count * size) : NULL;
}

void *realloc(void *memory, size_t size) {
    void *larger = malloc(size);
    if (!memory || !larger) return larger;
    struct block *block = (struct block *)memory - 1;
    size_t has = block->class >= CLASSES ? size : ((size_t)1 << (block->class + SMALLEST)) - sizeof(struct block);
    memcpy(larger, memory, has < size ? has : size);
    free(memory);
    return larger;
}

void *memalign(size_t alignment, size_t size) {
    char *memory = malloc(size + alignment + sizeof(struct block));
    if (!memory || alignment <= 16) return memory;
    char *aligned = (char *)(((uintptr_t)memory + sizeof(struct block) + alignment - 1) & ~(alignment - 1));
    struct block *block = (struct block *)memory - 1;
    *((struct block *)aligned - 1) = (struct block){block->class, (size_t)(aligned - memory)};
    return aligned;
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **memory, size_t alignment, size_t size) {
    *memory = memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}
