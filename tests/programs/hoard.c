/* Makes warpscope keep more and more for this process, in one of several ways:
 *
 *   hoard places FILE DIRECTORY   maps a made-up libtorch_cpu.so 20,000 times as code, then forks 1,000 children that exit
 *   hoard engines FILE DIRECTORY  maps 400 copies of a made-up libtorch_cpu.so as code, all at once
 *   hoard rates FILE              reports one launch that stands for 32,768 others, and then 4,000,000 kernels that it caused, each on
 *                                 its own stream or with its own name
 *
 * Creates FILE once it has begun. DIRECTORY contains libtorch_cpu.so and can be written to. Prints `done`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "session.h"

enum { MAPPINGS = 20000, FORKS = 1000, ENGINES = 400, PAGE = 4096 };
enum { KERNELS = 4000000, NAMES = 60000, MEMORY = 4096 + (1 << 14) * 64, NAME = 64, KERNEL = 2, LAUNCH_KERNEL = 1, RATE = 15 };

static void begun(const char *file) { close(open(file, O_CREAT | O_WRONLY, 0666)); }

static void map(int file, int offset) {
    if (mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, offset) == MAP_FAILED) fail("mmap");
}

static int library(const char *directory) {
    if (chdir(directory)) fail(directory);
    int file = open("libtorch_cpu.so", O_RDONLY);
    if (file < 0) fail("libtorch_cpu.so");
    return file;
}

static void places(const char *ready, const char *directory) {
    int file = library(directory);
    /* The functions, and so the probes, are in another page: the kernel would install the probes in each mapping of each child. */
    for (int i = 0; i < MAPPINGS; i++) map(file, PAGE);
    begun(ready);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (!child) _exit(0);
        if (child < 0 || waitpid(child, NULL, 0) != child) fail("fork");
    }
}

static void engines(const char *ready, const char *directory) {
    static char bytes[1 << 20];
    ssize_t size = read(library(directory), bytes, sizeof(bytes));
    begun(ready);
    for (int i = 0; i < ENGINES; i++) {
        char name[64];
        snprintf(name, sizeof(name), "engine-%d", i);
        if (mkdir(name, 0777)) fail(name);
        snprintf(name, sizeof(name), "engine-%d/libtorch_cpu.so", i);
        int file = open(name, O_CREAT | O_RDWR, 0777);
        if (file < 0 || write(file, bytes, size) != size) fail(name);
        map(file, 0);
        close(file);
    }
}

static void send_packet(int fd) {
    if (send(fd, packet, length, MSG_NOSIGNAL) != length) fail("send");
    length = 0;
}

static void rates(const char *ready) {
    int fd = connect_to_warpscope(), file = -1;
    put_hello();
    exchange(fd);
    length = 0;
    for (int i = 0; i < file_count; i++)
        if (file_sizes[i] == MEMORY) file = files[i];
    char *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    for (uint32_t name = 0; name < NAMES; name++) {
        char text[16];
        int size = snprintf(text, sizeof(text), "kernel-%u", name);
        if (length + 64 > PACKET) send_packet(fd);
        put8(NAME), put32(name), put16(size), put(text, size);
    }
    send_packet(fd);
    begun(ready);
    /* Each session keeps a launch for as long as no 4,096 others have run. */
    volatile uint64_t *slot = (void *)(memory + 4096);
    uint64_t time = now() * 1e9;
    slot[1] = 1 | (uint64_t)(LAUNCH_KERNEL | RATE << 8) << 32;
    slot[2] = getpid(), slot[3] = 0, slot[4] = time, slot[5] = slot[6] = slot[7] = 0;
    __atomic_store_n((uint64_t *)slot, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < KERNELS; i++) {
        if (length + 101 > PACKET) send_packet(fd);
        put8(KERNEL), put32(1), put32(0), put32(1), put32(i / NAMES), put64(time + 10ull * i), put64(time + 10ull * i + 5);
        put32(i % NAMES);
        for (int n = 0; n < 6; n++) put32(1);
        put16(1), put32(0), put64(0), put32(0);
    }
    send_packet(fd);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    const char *ready = realpath(".", NULL);
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", ready, arguments[2]);
    if (!strcmp(arguments[1], "places")) places(path, arguments[3]);
    if (!strcmp(arguments[1], "engines")) engines(path, arguments[3]);
    if (!strcmp(arguments[1], "rates")) rates(path);
    puts("done");
    return 0;
}
