// The library that the tests load.
#define _GNU_SOURCE
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

uint64_t slow(const void *argument, size_t size) {
    sleep(1);
    return 7;
}
