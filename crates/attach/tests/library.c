// The library that the tests load.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

// Returns the pid, and the sum of the argument in the upper half. 1 if signals are not blocked.
uint64_t entry(const void *argument, size_t size) {
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i++) sum += ((const unsigned char *)argument)[i];
    sigset_t mask;
    sigprocmask(SIG_BLOCK, 0, &mask);
    if (!sigismember(&mask, SIGTERM)) return 1;
    return sum << 32 | (uint32_t)getpid();
}

// Returns when the main thread runs without a tracer, which it does only if it does not wait for this function.
uint64_t slow(const void *argument, size_t size) {
    for (;; usleep(1000)) {
        char text[4096] = "";
        int file = open("/proc/self/status", O_RDONLY);
        if (read(file, text, sizeof text - 1) < 0) return 0;
        close(file);
        if (strstr(text, "TracerPid:\t0\n")) return 7;
    }
}

uint64_t count(const void *argument, size_t size) {
    static uint64_t calls;
    return ++calls;
}
