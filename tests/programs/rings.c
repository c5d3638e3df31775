/* Attacks warpscope through the memory that traced processes write their calls to.
 *
 *   rings SECONDS FILE     behaves like the injected library until it has the memory, tries to shrink it, creates FILE, and
 *                          then writes random events and positions to all rings; prints the number of words written */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "packet.h"

enum { FUNCTIONS_END = 20, FUNCTION = 67, RINGS = 128, RING = 128, THREAD = 1, ENTER = 2, EXIT = 3, FIRST = 4 };
/* The first ring's positions follow the table of functions and two counters, at a multiple of 64. */
enum { HEADER = 2 * 1024 * 10 + 64 };

static uint64_t state;

static uint64_t draw(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void announce(int fd) {
    put_hello();
    for (int i = 1; i < 1000; i++) {
        char name[32];
        int bytes = snprintf(name, sizeof(name), "cuInvented%d", i);
        put8(FUNCTION), put32(i), put16(bytes), put(name, bytes);
    }
    put8(FUNCTIONS_END), put8(1);
    if (send(fd, packet, length, MSG_NOSIGNAL) != length) fail("send");
}

/* The memory: the larger of the two files that come with the reply. */
static int receive(int fd) {
    union { struct cmsghdr header; char bytes[CMSG_SPACE(2 * sizeof(int))]; } control = {0};
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    if (recvmsg(fd, &message, 0) != 1) fail("recvmsg");
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int files[2], found = -1, count = header ? (header->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    struct stat best = {0};
    if (header) memcpy(files, CMSG_DATA(header), sizeof(int) * count);
    for (int i = 0; i < count; i++) {
        struct stat info;
        if (!fstat(files[i], &info) && info.st_size > best.st_size) best = info, found = files[i];
    }
    return found;
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
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("WARPSCOPE_SOCKET");
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (!path || fd < 0) fail("no socket");
    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    if (connect(fd, (void *)&address, sizeof(address))) fail("connect");
    announce(fd);
    int file = receive(fd);
    struct stat info;
    if (file < 0 || fstat(file, &info)) fail("no memory");
    if (!ftruncate(file, 4096) || !ftruncate(file, info.st_size * 2)) fail("the size can be changed");
    char *memory = mmap(NULL, info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    close(open(args[2], O_CREAT | O_WRONLY, 0666));
    getrandom(&state, sizeof(state), 0);
    uint64_t written = 0, heads[RINGS] = {0};
    volatile uint64_t *words = (void *)memory;
    while (now() < end) {
        for (int i = 0; i < 100000; i++, written++) words[(HEADER + RINGS * RING) / 8 + draw() % (info.st_size / 8 - (HEADER + RINGS * RING) / 8)] = word();
        for (int ring = 0; ring < RINGS; ring++) {
            volatile uint64_t *head = (void *)(memory + HEADER + RING * ring);
            heads[ring] += draw() % 4096;
            head[0] = draw() % 50 ? heads[ring] : draw();
            head[1] = draw();
            ((volatile uint32_t *)head)[4] = draw() % 4;
            if (draw() % 20 == 0) head[8] = draw();
        }
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, info.st_size);
    }
    printf("%lu words\n", written);
    return 0;
}
