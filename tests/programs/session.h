/* Behaves like the injected library until it has the reply to its first packet. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include "packet.h"

enum { FILES = 4 };

/* The files that come with the reply, and their sizes; that of a BPF map is 0. */
static int files[FILES], file_count;
static off_t file_sizes[FILES];

static uint64_t state;

static __attribute__((unused)) uint64_t draw(void) {
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

static int connect_to_warpscope(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("WARPSCOPE_SOCKET");
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (!path || fd < 0) fail("no socket");
    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    if (connect(fd, (void *)&address, sizeof(address))) fail("connect");
    getrandom(&state, sizeof(state), 0);
    return fd;
}

/* Sends the packet and waits for the reply. */
static void exchange(int fd) {
    union { struct cmsghdr header; char bytes[CMSG_SPACE(FILES * sizeof(int))]; } control = {0};
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    if (send(fd, packet, length, MSG_NOSIGNAL) != length) fail("send");
    if (recvmsg(fd, &message, 0) != 1) fail("recvmsg");
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    file_count = header ? (header->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    if (header) memcpy(files, CMSG_DATA(header), sizeof(int) * file_count);
    for (int i = 0; i < file_count; i++) {
        struct stat info;
        if (fstat(files[i], &info)) fail("fstat");
        file_sizes[i] = info.st_size;
    }
}
