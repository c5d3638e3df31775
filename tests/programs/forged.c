/* Attacks warpscope through the memory that processes report their launches in.
 *
 *   forged SECONDS FILE    behaves like the injected library until it has the memory, tries to shrink it and to change the BPF
 *                          map that came with it, creates FILE, and then writes launches that never happened, and any words,
 *                          for as many seconds and until there are 100,000 launches */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "session.h"

enum { LEAST = 100000, SLOTS = 1 << 14, SLOT = 64, MEMORY = 4096 + SLOTS * SLOT, MAP = 4096 * 16 };

/* Other processes trust what the BPF programs write there. */
static void try_to_change(int map) {
    uint32_t key = 1;
    uint64_t value[2] = {~0ull, ~0ull};
    union bpf_attr attributes = {.map_fd = map, .key = (uint64_t)&key, .value = (uint64_t)value};
    if (mmap(NULL, MAP, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0) != MAP_FAILED) fail("the map can be written");
    void *mapped = mmap(NULL, MAP, PROT_READ, MAP_SHARED, map, 0);
    if (mapped == MAP_FAILED) fail("the map cannot be read");
    if (!mprotect(mapped, MAP, PROT_READ | PROT_WRITE)) fail("the map can be made writable");
    if (!syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attributes, sizeof(attributes))) fail("the map can be changed");
}

int main(int count, char **args) {
    if (count != 3) return 2;
    double end = now() + atof(args[1]);
    int fd = connect_to_warpscope(), file = -1;
    put_hello();
    exchange(fd);
    for (int i = 0; i < file_count; i++) {
        if (file_sizes[i] == MEMORY) file = files[i];
        if (file_sizes[i] == 0) try_to_change(files[i]);
    }
    if (file < 0 || file_count != 3) fail("no memory");
    if (!ftruncate(file, 4096) || !ftruncate(file, MEMORY * 2)) fail("the size can be changed");
    char *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    close(open(args[2], O_CREAT | O_WRONLY, 0666));
    uint64_t place = 0;
    while (now() < end || place < LEAST) {
        volatile uint64_t *slot = (void *)(memory + 4096 + place % SLOTS * SLOT);
        if (*slot != place / SLOTS * 2) continue;
        for (int word = 1; word < 7; word++) slot[word] = draw();
        /* Often all that warpscope checks is right: the kind of work, a small number of a call, a time. */
        if (draw() % 4) slot[1] = draw() % 4096 | 1ull << 32;
        if (draw() % 2) slot[3] = draw() % 64;
        if (draw() % 2) slot[4] = now() * 1e9;
        *slot = place / SLOTS * 2 + 1;
        place++;
    }
    for (int word = 0; word < MEMORY / 8; word++) ((volatile uint64_t *)memory)[word] = draw();
    return 0;
}
