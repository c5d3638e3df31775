/* Attacks a metrics server on 127.0.0.1 until its input ends: storm PORT. Prints `attacking` when all attacks have started.
 *
 *   pipeline  128 connections that send requests without end and read all answers
 *   deaf      128 connections that send requests without end and read nothing
 *   idle      500 connections that send nothing
 *   half      100 connections with half a request
 *   reopen    2 processes that connect, send a request and close, from many addresses, as fast as they can
 *   reset     2 processes that connect and reset, as fast as they can */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

static int port, announce;

/* Connects from one of the loopback addresses; -1 on failure. */
static int connect_from(int number) {
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + number % 200) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0) return -1;
    bind(fd, (void *)&from, sizeof(from));
    if (connect(fd, (void *)&to, sizeof(to))) {
        close(fd);
        return -1;
    }
    return fd;
}

static void ready(void) {
    static int announced;

    if (announced++ == 0 && write(announce, "x", 1) != 1) exit(1);
}

/* Keeps `count` connections open, and reopens those that are closed. */
static void keep(int count, const char *request, int reads) {
    struct pollfd all[512];
    static char many[64 * sizeof(REQUEST)], sink[1 << 16];
    size_t length = 0;

    for (int i = 0; request && i < 64; i++) length += sprintf(many + length, "%s", request);
    if (request && strcmp(request, REQUEST)) length = strlen(request);
    for (int i = 0; i < count; i++) all[i].fd = -1;
    for (;;) {
        for (int i = 0; i < count; i++) {
            /* The other parts hold up the rest for many seconds. */
            if (i == count / 8) ready();
            if (all[i].fd >= 0) continue;
            all[i].fd = connect_from(i);
            if (all[i].fd < 0) continue;
            fcntl(all[i].fd, F_SETFL, O_NONBLOCK);
            all[i].events = (reads ? POLLIN : POLLRDHUP) | (length && !strcmp(request, REQUEST) ? POLLOUT : 0);
            if (length && write(all[i].fd, many, length) < 0 && errno != EAGAIN) all[i].revents = POLLERR;
        }
        ready();
        poll(all, count, 100);
        for (int i = 0; i < count; i++) {
            int over = all[i].revents & (POLLERR | POLLHUP | POLLRDHUP);

            if (all[i].revents & POLLIN && read(all[i].fd, sink, sizeof(sink)) == 0) over = 1;
            if (!over && all[i].revents & POLLOUT && write(all[i].fd, many, length) < 0 && errno != EAGAIN) over = 1;
            if (over) {
                close(all[i].fd);
                all[i].fd = -1;
            }
        }
    }
}

static void pipeline(void) { keep(128, REQUEST, 1); }
static void deaf(void) { keep(128, REQUEST, 0); }
static void idle(void) { keep(500, NULL, 0); }
static void half(void) { keep(100, "GET /metrics HTTP/1.1\r\nHos", 0); }

static void storm(int send_request) {
    struct linger reset = { .l_onoff = 1 };

    for (int number = 0;; number++) {
        int fd = connect_from(number);

        if (fd < 0) continue;
        if (send_request && write(fd, REQUEST, sizeof(REQUEST) - 1) < 0) {}
        if (!send_request) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(fd);
        if (number > 100) ready();
    }
}
static void reopen(void) { storm(1); }
static void reset(void) { storm(0); }

int main(int argc, char **argv) {
    static void (*const parts[])(void) = { pipeline, deaf, idle, half, reopen, reopen, reset, reset };
    struct rlimit files = { 1024, 1024 };
    int announced[2];
    char byte;

    if (argc != 2 || pipe(announced)) return 1;
    port = atoi(argv[1]);
    announce = announced[1];
    signal(SIGPIPE, SIG_IGN);
    setrlimit(RLIMIT_NOFILE, &files);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        if (fork()) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        parts[i]();
    }
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (read(announced[0], &byte, 1) != 1) return 1;
    puts("attacking");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
