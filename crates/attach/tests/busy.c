// 32 threads that check their own results: registers and system calls must survive every visit.
// The first argument is the kind of system call in which all of them wait; without it, all kinds are used.
// Writes "ready", runs until its standard input ends, then writes "ok ROUNDS" or exits with 1 and a message.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int stop;
static pthread_barrier_t all_wait; // all threads have their files
static atomic_ulong rounds;

static void wrong(const char *what, long got) {
    fprintf(stderr, "wrong: %s: %ld (errno %d)\n", what, got, errno);
    _exit(1);
}

// A system call with known values in every register that must survive it.
static long guarded(long number, long a, long b, long c, long d) {
    uint64_t in[8], out[8], x87[2] = {0, 0};
    for (int i = 0; i < 8; i++) in[i] = 0x1111111111111111u * (i + 1) ^ (uint64_t)a;
    long result;
    double pi = 0;
    register long r10 asm("r10") = d;
    asm volatile("fldpi\n vmovups (%[in]), %%ymm3\n vmovups 32(%[in]), %%ymm15\n"
                 "mov (%[in]), %%r12\n mov 8(%[in]), %%r13\n mov 16(%[in]), %%r14\n"
                 "syscall\n"
                 "vmovups %%ymm3, (%[out])\n vmovups %%ymm15, 32(%[out])\n fstpl %[pi]\n"
                 "cmp (%[in]), %%r12\n jne 1f\n cmp 8(%[in]), %%r13\n jne 1f\n cmp 16(%[in]), %%r14\n je 2f\n"
                 "1: ud2\n 2:\n"
                 : "=a"(result), [pi] "=m"(pi)
                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), [in] "r"(in), [out] "r"(out)
                 : "rcx", "r11", "r12", "r13", "r14", "xmm3", "xmm15", "memory", "st");
    for (int i = 0; i < 8; i++)
        if (in[i] != out[i]) wrong("vector register", i);
    if (pi != 3.14159265358979323846) wrong("x87 register", 0);
    return result;
}

static int futex_word;

// What a thread waits with: nothing ever arrives.
struct waiter {
    long kind;
    int pipe, epoll;
};

static struct waiter waiter(long kind) {
    int pipes[2];
    if (pipe(pipes)) wrong("pipe", 0);
    struct waiter waiter = {kind, pipes[0], epoll_create1(0)};
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(waiter.epoll, EPOLL_CTL_ADD, pipes[0], &event);
    return waiter;
}

// Waits 3 ms. The result and the time must be as without a visit.
static void wait_once(struct waiter waiter) {
    struct timespec time = {0, 3000000}, before, after;
    struct pollfd poll = {waiter.pipe, POLLIN, 0};
    struct epoll_event event;
    clock_gettime(CLOCK_MONOTONIC, &before);
    long result, expected = 0;
    switch (waiter.kind % 4) {
    case 0: result = guarded(SYS_nanosleep, (long)&time, 0, 0, 0); break;
    case 1: result = guarded(SYS_poll, (long)&poll, 1, 3, 0); break;
    case 2: result = guarded(SYS_futex, (long)&futex_word, 0, 0, (long)&time); expected = -ETIMEDOUT; break;
    default: result = guarded(SYS_epoll_wait, waiter.epoll, (long)&event, 1, 3); break;
    }
    if (result != expected) wrong("system call", result);
    clock_gettime(CLOCK_MONOTONIC, &after);
    if ((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec < 2900000) wrong("early", 0);
}

static void *waits(void *kind) {
    struct waiter own = waiter((long)kind);
    pthread_barrier_wait(&all_wait);
    for (; !stop; rounds++) wait_once(own);
    return 0;
}

static void *computes(void *kind) {
    struct waiter own = waiter((long)kind);
    pthread_barrier_wait(&all_wait);
    for (; !stop; rounds++) {
        double sum = 0;
        uint64_t hash = rounds;
        for (int i = 1; i <= 20000; i++) sum += i * 0.5, hash = hash * 6364136223846793005u + i;
        if (sum != 100005000.0) wrong("sum", (long)sum);
        free(malloc(hash % 5000));
        wait_once(own);
    }
    return 0;
}

int main(int count, char **arguments) {
    pthread_t threads[32];
    pthread_barrier_init(&all_wait, 0, 33);
    for (long i = 0; i < 32; i++) {
        long kind = count > 1 ? atol(arguments[1]) : i;
        pthread_create(&threads[i], 0, i < 24 ? waits : computes, (void *)kind);
    }
    struct waiter own = waiter(count > 1 ? atol(arguments[1]) : 0);
    pthread_barrier_wait(&all_wait);
    fcntl(0, F_SETFL, O_NONBLOCK);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) != 0) wait_once(own);
    stop = 1;
    for (int i = 0; i < 32; i++) pthread_join(threads[i], 0);
    printf("ok %lu\n", rounds);
    return 0;
}
