/* Attacks warpscope through the socket that injected libraries connect to, with one process for each kind of attack.
 *
 *   flood SECONDS FILE     creates FILE once every attack has started, and goes on for as many seconds and until 256 MiB
 *                          have been sent */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "packet.h"

enum { TEXT = 8 * 1024, LEAST = 256 << 20 };
enum { KERNEL = 2, TOTALS = 7, NODE_CREATED = 17, NODE_COPIED = 18, DEVICE_ID = 21, NAME = 64, DEVICE = 65, NOTICE = 66 };

static struct {
    uint64_t bytes;
    uint32_t started;
} *shared;
static double end;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int over(void) {
    return now() > end && __atomic_load_n(&shared->bytes, __ATOMIC_RELAXED) >= LEAST;
}

static int connect_to_warpscope(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, getenv("WARPSCOPE_SOCKET"), sizeof(address.sun_path) - 1);
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (fd >= 0 && !connect(fd, (void *)&address, sizeof(address)))
            return fd;
        if (fd >= 0)
            close(fd);
        if (over())
            return -1;
        usleep(1000);
    }
}

/* Returns 0 if the other end has closed. */
static int send_packet(int fd) {
    ssize_t sent = send(fd, packet, length, MSG_NOSIGNAL);
    length = 0;
    if (sent > 0)
        __atomic_add_fetch(&shared->bytes, sent, __ATOMIC_RELAXED);
    return sent > 0;
}

static int send_hello(int fd) {
    put_hello();
    return send_packet(fd);
}

static void put_text(int tag, uint32_t id) {
    static uint8_t text[TEXT];
    for (int i = 0; i < TEXT; i++)
        text[i] = 'a' + (id >> (i % 8)) % 23;
    memcpy(text, &id, sizeof(id));
    put8(tag), put32(id), put16(TEXT), put(text, TEXT);
}

static void names(int fd, uint32_t i) {
    for (int n = 0; n < 3; n++)
        put_text(NAME, 3 * i + n);
    send_packet(fd);
}

static void devices(int fd, uint32_t i) {
    put8(DEVICE_ID), put32(i % 100), put64(i), put64(i), put64(i), put64(i), put64(i);
    put_text(DEVICE, i), put_text(DEVICE, i % 100);
    send_packet(fd);
}

static void notices(int fd, uint32_t i) {
    put8(NOTICE), put32(3), put16(200);
    char text[200];
    snprintf(text, sizeof(text), "%u \033[2J invented", i);
    put(text, sizeof(text));
    send_packet(fd);
}

/* Each kernel has its own stream and its own name. */
static void kernels(int fd, uint32_t i) {
    while (length + 101 < PACKET) {
        put8(KERNEL), put32(i), put32(i % 200), put32(i / 7), put32(i / 3), put64(1000000 + 10 * i), put64(1000005 + 10 * i);
        put32(i % 50000);
        for (int n = 0; n < 6; n++)
            put32(1);
        put16(1), put32(0), put64(0), put32(0);
        i += 977;
    }
    send_packet(fd);
}

/* Nodes of graphs that are never destroyed, each of its own launch, and copies of each. */
static void nodes(int fd, uint32_t i) {
    for (uint64_t node = (uint64_t)i << 32; length + 39 < PACKET; node++) {
        put8(NODE_CREATED), put64(node), put32((uint32_t)node), put8(node & 1);
        put8(NODE_COPIED), put64(node + (1ull << 31)), put64(node), put64(node);
    }
    send_packet(fd);
}

static void totals(int fd, uint32_t i) {
    while (length + 113 < PACKET) {
        put8(TOTALS);
        for (int n = 0; n < 14; n++)
            put64(n == 0 ? i : 0);
    }
    send_packet(fd);
}

static void nonsense(int fd, uint32_t i) {
    for (int n = 0; n < 100; n++)
        put32(0xffffffff - i - n);
    send_packet(fd);
}

static void sessions(int fd, uint32_t i) {
    (void)i;
    send_hello(fd);
}

static void nothing(int fd, uint32_t i) {
    (void)fd, (void)i;
    usleep(1000);
}

/* `again` opens a new connection for each round. `hold` keeps the old ones. */
static void attack(void (*send_one)(int, uint32_t), int again, int hold) {
    int fd = connect_to_warpscope(), first = 1;
    if (send_one != sessions && send_one != nonsense)
        send_hello(fd);
    for (uint32_t i = 1; !over(); i++) {
        send_one(fd, i);
        if (first)
            __atomic_add_fetch(&shared->started, 1, __ATOMIC_RELAXED);
        first = 0;
        if (again) {
            if (!hold)
                close(fd);
            fd = connect_to_warpscope();
        }
    }
    _exit(0);
}

int main(int argc, char **argv) {
    static const struct {
        void (*send_one)(int, uint32_t);
        int again, hold;
    } attacks[] = {{names, 0, 0},   {devices, 0, 0},  {notices, 0, 0},  {kernels, 0, 0},
                   {nodes, 0, 0},   {totals, 0, 0},  {nonsense, 1, 0}, {sessions, 1, 0}, {nothing, 1, 1}};
    const unsigned count = sizeof(attacks) / sizeof(*attacks);
    if (argc < 3)
        return 2;
    shared = mmap(0, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    end = now() + atof(argv[1]);
    for (unsigned i = 0; i < count; i++)
        if (!fork())
            attack(attacks[i].send_one, attacks[i].again, attacks[i].hold);
    while (__atomic_load_n(&shared->started, __ATOMIC_RELAXED) < count)
        usleep(1000);
    close(open(argv[2], O_CREAT | O_WRONLY, 0644));
    while (wait(0) > 0)
        ;
    return 0;
}
