/* Makes warpscope keep more and more for this process, in one of several ways:
 *
 *   hoard places FILE DIRECTORY   maps a made-up libtorch_cpu.so 20,000 times as code, then forks 1,000 children that exit
 *   hoard engines FILE DIRECTORY  maps 400 copies of a made-up libtorch_cpu.so as code, all at once
 *   hoard rates FILE              reports one launch that stands for 32,768 others, and then 4,000,000 kernels that it caused, each on
 *                                 its own stream or with its own name
 *   hoard events FILE             renames four threads, and sends messages in eight sessions, all the time for 60 seconds
 *   hoard foreign FILE PROGRAM... runs a program, reads from its memory which stacks its threads know, and reports launches and
 *                                 kernels of its own with these stacks, until the program has ended
 *   hoard stacks FILE             launches a kernel 200,000 times, each time from another call path
 *   hoard threads FILE            starts 160,000 threads, each with a name
 *   hoard mappings FILE           maps itself as code 200,000 times, one at a time
 *
 * Creates FILE once it has begun. DIRECTORY contains libtorch_cpu.so and can be written to. Prints `done`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"
#include "session.h"

enum { MAPPINGS = 20000, FORKS = 1000, ENGINES = 400, RENAMING = 4, TALKING = 8, PAGE = 4096 };
enum { LAUNCHES = 200000, LEVELS = 40, THREADS = 160000, REMAPPINGS = 200000 };
enum { KERNELS = 4000000, NAMES = 60000, SLOTS = 1 << 14, MEMORY = 4096 + SLOTS * 64, NAME = 64, KERNEL = 2, LAUNCH_KERNEL = 1, RATE = 15 };

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
        /* Does not copy the mappings in the kernel, which would take most of the time. */
        pid_t child = vfork();
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

/* Begins a session, and returns the memory for its launches. */
static char *begin_session(int fd) {
    int file = -1;
    put_hello();
    exchange(fd);
    length = 0;
    for (int i = 0; i < file_count; i++)
        if (file_sizes[i] == MEMORY) file = files[i];
    char *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    return memory;
}

/* Reports the launch of a kernel, the `place`th of the session, as the injected library does. */
static void report_launch(char *memory, uint64_t place, uint32_t correlation, uint64_t stack, uint32_t rate) {
    volatile uint64_t *slot = (void *)(memory + 4096 + place % SLOTS * 64);
    while (*slot != place / SLOTS * 2) usleep(100);
    slot[1] = correlation | (uint64_t)(LAUNCH_KERNEL | rate << 8) << 32;
    slot[2] = getpid(), slot[3] = 0, slot[4] = now() * 1e9, slot[5] = stack, slot[6] = slot[7] = 0;
    __atomic_store_n((uint64_t *)slot, place / SLOTS * 2 + 1, __ATOMIC_RELEASE);
}

static void put_kernel(uint32_t correlation, uint32_t stream, uint64_t start, uint32_t name) {
    put8(KERNEL), put32(correlation), put32(0), put32(1), put32(stream), put64(start), put64(start + 3000), put32(name);
    for (int n = 0; n < 6; n++) put32(1);
    put16(1), put32(0), put64(0), put32(0);
}

static void put_name(uint32_t name) {
    char text[16];
    int size = snprintf(text, sizeof(text), "kernel-%u", name);
    put8(NAME), put32(name), put16(size), put(text, size);
}

static void rates(const char *ready) {
    int fd = connect_to_warpscope();
    char *memory = begin_session(fd);
    for (uint32_t name = 0; name < NAMES; name++) {
        if (length + 64 > PACKET) send_packet(fd);
        put_name(name);
    }
    send_packet(fd);
    begun(ready);
    uint64_t time = now() * 1e9;
    report_launch(memory, 0, 1, 0, RATE);
    for (uint32_t i = 0; i < KERNELS; i++) {
        if (length + 101 > PACKET) send_packet(fd);
        put_kernel(1, i / NAMES, time + 10ull * i, i % NAMES);
    }
    send_packet(fd);
}

static void *rename_forever(void *unused) {
    for (int i = 0;; i++) prctl(PR_SET_NAME, i % 2 ? "one" : "other");
    return unused;
}

/* Sends the same packet again and again. */
static void *talk_forever(void *socket) {
    while (send((int)(intptr_t)socket, packet, length, MSG_NOSIGNAL) == length)
        ;
    return NULL;
}

static void events(const char *ready) {
    pthread_t thread;
    int sockets[TALKING];
    for (int i = 0; i < TALKING; i++) {
        sockets[i] = connect_to_warpscope();
        begin_session(sockets[i]);
    }
    while (length + 64 < PACKET) put_name(0);
    for (int i = 0; i < TALKING; i++)
        if (pthread_create(&thread, NULL, talk_forever, (void *)(intptr_t)sockets[i])) fail("pthread_create");
    for (int i = 0; i < RENAMING; i++)
        if (pthread_create(&thread, NULL, rename_forever, NULL)) fail("pthread_create");
    begun(ready);
    sleep(60);
}

/* Reads numbers that may be those of stacks from the memory that a process shares with warpscope. Addresses are smaller. */
static int read_stacks(pid_t pid, uint64_t *stacks, int most) {
    static uint64_t words[(4 << 20) / 8];
    char path[64], line[512];
    unsigned long start, end;
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    snprintf(path, sizeof(path), "/proc/%d/mem", pid);
    int memory = open(path, O_RDONLY);
    while (maps && fgets(line, sizeof(line), maps)) {
        if (!strstr(line, "warpscope-stacks") || sscanf(line, "%lx-%lx", &start, &end) != 2) continue;
        ssize_t size = pread(memory, words, sizeof(words), start);
        for (ssize_t i = 0; i < size / 8 && count < most; i++)
            if (words[i] % 2 && words[i] >> 48) stacks[count++] = words[i];
    }
    if (maps) fclose(maps);
    close(memory);
    return count;
}

static void foreign(const char *ready, char **program) {
    uint64_t stacks[4096];
    int count = 0, status;
    pid_t child = fork();
    if (!child) {
        execv(program[0], program);
        fail(program[0]);
    }
    begun(ready);
    /* The program has more stacks than that. Some of these numbers are something else. */
    while ((count = read_stacks(child, stacks, 4096)) < 40) {
        if (waitpid(child, &status, WNOHANG)) fail("the program ended before its stacks were known");
        usleep(1000);
    }
    int fd = connect_to_warpscope();
    char *memory = begin_session(fd);
    put_name(0);
    for (int i = 0; i < count; i++) {
        report_launch(memory, i, i + 1, stacks[i], 0);
        if (length + 101 > PACKET) send_packet(fd);
        put_kernel(i + 1, 1, now() * 1e9, 0);
    }
    send_packet(fd);
    if (waitpid(child, &status, 0) != child || status) fail("the program");
}

static void step_0(uint64_t path, int level);
static void step_1(uint64_t path, int level);
static void step_2(uint64_t path, int level);
static void step_3(uint64_t path, int level);
static void (*const steps[])(uint64_t, int) = {step_0, step_1, step_2, step_3};
static char kernel;

/* Two bits of the path choose the next function, and a hash of them those after the last bits. */
__attribute__((noinline)) static void deeper(uint64_t path, int level) {
    if (level == LEVELS) {
        if (cudaLaunchKernel(&kernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) fail("cudaLaunchKernel");
    } else {
        steps[path >> 62](path * 6364136223846793005u + 1442695040888963407u, level + 1);
    }
    __asm__ volatile("" ::: "memory");
}

#define STEP(n)                                                                \
    __attribute__((noinline)) static void step_##n(uint64_t path, int level) { \
        deeper(path, level);                                                   \
        __asm__ volatile("# " #n ::: "memory");                                \
    }
STEP(0)
STEP(1)
STEP(2)
STEP(3)

static void stacks(const char *ready) {
    __cudaRegisterFunction(__cudaRegisterFatBinary(NULL), &kernel, "wander", "wander", -1, NULL, NULL, NULL, NULL, NULL);
    begun(ready);
    for (uint64_t i = 0; i < LAUNCHES; i++) deeper(i * 0x9e3779b97f4a7c15u, 0);
    if (cudaDeviceSynchronize()) fail("cudaDeviceSynchronize");
}

static void *name_thread(void *number) {
    char name[16];
    snprintf(name, sizeof(name), "thread-%d", (int)(intptr_t)number);
    prctl(PR_SET_NAME, name);
    return NULL;
}

static void threads(const char *ready) {
    pthread_t thread;
    begun(ready);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, name_thread, (void *)(intptr_t)i) || pthread_join(thread, NULL)) fail("thread");
}

static void mappings(const char *ready) {
    int file = open("/proc/self/exe", O_RDONLY);
    begun(ready);
    for (int i = 0; i < REMAPPINGS; i++) {
        void *code = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        if (code == MAP_FAILED || munmap(code, PAGE)) fail("mmap");
    }
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    const char *ready = realpath(".", NULL);
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", ready, arguments[2]);
    if (!strcmp(arguments[1], "places")) places(path, arguments[3]);
    if (!strcmp(arguments[1], "engines")) engines(path, arguments[3]);
    if (!strcmp(arguments[1], "rates")) rates(path);
    if (!strcmp(arguments[1], "events")) events(path);
    if (!strcmp(arguments[1], "stacks")) stacks(path);
    if (!strcmp(arguments[1], "threads")) threads(path);
    if (!strcmp(arguments[1], "mappings")) mappings(path);
    if (!strcmp(arguments[1], "foreign")) foreign(path, arguments + 3);
    puts("done");
    return 0;
}
