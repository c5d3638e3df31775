/* Attacks warpscope through the memory that traced processes write their calls to.
 *
 *   rings SECONDS FILE     behaves like the injected library until it has the memory, tries to shrink it, creates FILE, and
 *                          then writes random events and positions to all rings; prints the number of words written */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "session.h"

enum { FUNCTIONS_END = 20, FUNCTION = 67, RINGS = 128, RING = 128, THREAD = 1, ENTER = 2, EXIT = 3, FIRST = 4 };
/* The first ring's positions follow the table of functions and two counters, at a multiple of 64. */
enum { HEADER = 2 * 1024 * 10 + 64 };

static void announce(void) {
    put_hello();
    for (int i = 1; i < 1000; i++) {
        char name[32];
        int bytes = snprintf(name, sizeof(name), "cuInvented%d", i);
        put8(FUNCTION), put32(i), put16(bytes), put(name, bytes);
    }
    put8(FUNCTIONS_END), put8(1);
}

/* An event that looks right in every way but one, or any word. */
static uint64_t word(void) {
    uint64_t kind = 1 + draw() % 4, function = 1 + draw() % 999, depth = draw() % 20, words = 2 + draw() % 8;
    if (draw() % 16 == 0) return draw();
    if (draw() % 64 == 0) words = draw() % 65536;
    return kind | draw() % 8 << 8 | function << 16 | depth << 32 | words << 48;
}

int main(int count, char **args) {
    if (count != 3) return 2;
    double end = now() + atof(args[1]);
    int fd = connect_to_warpscope(), best = 0;
    announce();
    exchange(fd);
    for (int i = 1; i < file_count; i++)
        if (file_sizes[i] > file_sizes[best]) best = i;
    int file = files[best];
    off_t size = file_sizes[best];
    if (!file_count) fail("no memory");
    if (!ftruncate(file, 4096) || !ftruncate(file, size * 2)) fail("the size can be changed");
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    close(open(args[2], O_CREAT | O_WRONLY, 0666));
    uint64_t written = 0, heads[RINGS] = {0};
    volatile uint64_t *words = (void *)memory;
    while (now() < end) {
        for (int i = 0; i < 100000; i++, written++) words[(HEADER + RINGS * RING) / 8 + draw() % (size / 8 - (HEADER + RINGS * RING) / 8)] = word();
        for (int ring = 0; ring < RINGS; ring++) {
            volatile uint64_t *head = (void *)(memory + HEADER + RING * ring);
            heads[ring] += draw() % 4096;
            head[0] = draw() % 50 ? heads[ring] : draw();
            head[1] = draw();
            ((volatile uint32_t *)head)[4] = draw() % 4;
            if (draw() % 20 == 0) head[8] = draw();
        }
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size);
    }
    printf("%lu words\n", written);
    return 0;
}
