/* Maps files that contain no code as code: `maps WAY COUNT FILE...`, then works a while and exits 0.
 *
 *   map      every FILE, COUNT times
 *   replace  every FILE, which is then replaced by a FIFO
 *   cut      every FILE, which is then truncated and rewritten all the time */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void map(const char *name) {
    struct stat about;
    int file = open(name, O_RDONLY);
    if (file < 0 || fstat(file, &about)) exit(1);
    size_t length = about.st_size > 1 << 20 ? 1 << 20 : (size_t)about.st_size + !about.st_size;
    /* Failures to map a file are ignored. */
    mmap(NULL, length, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    close(file);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void rewrite(const char *name) {
    static char bytes[1 << 16];
    int file = open(name, O_RDWR);
    ssize_t length = read(file, bytes, sizeof bytes);
    if (ftruncate(file, 0) || lseek(file, 0, SEEK_SET) || write(file, bytes, (size_t)length) != length) exit(1);
    close(file);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *way = argv[1];
    for (long i = 0; i < atol(argv[2]); i++)
        for (int f = 3; f < argc; f++) map(argv[f]);
    for (int f = 3; f < argc && !strcmp(way, "replace"); f++)
        if (unlink(argv[f]) || mkfifo(argv[f], 0600)) return 1;
    double until = now() + (strcmp(way, "replace") ? 0.2 : 0);
    while (now() < until)
        for (int f = 3; f < argc && !strcmp(way, "cut"); f++) rewrite(argv[f]);
    return 0;
}
