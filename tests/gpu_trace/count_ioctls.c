/* An independent count of a program's requests to the driver: preloaded, it wraps libc's ioctl and counts calls on
 * /dev/nvidia* by device and request. At exit each line of the file COUNT_IOCTLS is "DEVICE REQUEST COUNT". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 4096 };
static struct { char device[32]; unsigned long request; unsigned long long count; } seen[MOST];
static int kinds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int (*real)(int, unsigned long, ...);

static void count(int fd, unsigned long request) {
    char link[64], path[128];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    if (!name || strncmp(name + 1, "nvidia", 6)) return;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < kinds && (seen[i].request != (unsigned)request || strcmp(seen[i].device, name + 1))) i++;
    if (i == kinds && kinds < MOST) {
        snprintf(seen[i].device, sizeof seen[i].device, "%s", name + 1);
        seen[i].request = (unsigned)request;
        kinds++;
    }
    if (i < kinds) seen[i].count++;
    pthread_mutex_unlock(&lock);
}

int ioctl(int fd, unsigned long request, ...) {
    va_list more;
    va_start(more, request);
    void *argument = va_arg(more, void *);
    va_end(more);
    if (!real) real = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    count(fd, request);
    return real(fd, request, argument);
}

__attribute__((destructor)) static void write_counts(void) {
    const char *path = getenv("COUNT_IOCTLS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    for (int i = 0; i < kinds; i++) fprintf(file, "%s %lu %llu\n", seen[i].device, seen[i].request, seen[i].count);
    fclose(file);
}
