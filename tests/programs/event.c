/* Calls functions a known number of times, with known arguments, from known paths, in threads and a child.
 *
 *   event          the paths below; prints nothing
 *   event storm N  `take` N times in each of 4 threads
 *   event usdt     hits of the static tracepoints; prints how many saw the semaphore raised
 *
 * Path                                      calls of take(weight, tag)        weights
 * main > from_one                           3                                 10, 11, 12
 * main > from_two > deeper                  5                                 100 each
 * in_thread > from_one, in each of 4        3                                 10, 11, 12
 * main > in_child > from_two > deeper       5, in its own process             100 each
 * main > below_zero                         2                                 -1 and -2
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

#define OUTSIDE __attribute__((noinline, used))

OUTSIDE long take(long weight, int tag) {
    __asm__ volatile("" ::"r"(tag));
    return 2 * weight;
}

/* Two more arguments than there are registers. */
OUTSIDE long many(long a, long b, long c, long d, long e, long f, long g, long h) {
    __asm__ volatile("" ::"r"(a), "r"(b), "r"(c), "r"(d));
    return e + f + g + h;
}

/* A name that a C++ compiler would generate: work::run(int). */
OUTSIDE int run(int steps) __asm__("_ZN4work3runEi");
OUTSIDE int run(int steps) {
    __asm__ volatile("" ::"r"(steps));
    return steps;
}

OUTSIDE int pick_first(void) {
    __asm__ volatile("");
    return 1;
}

OUTSIDE int pick_second(void) {
    __asm__ volatile("");
    return 2;
}

static volatile long sum;

OUTSIDE void from_one(void) {
    for (int i = 0; i < 3; i++) sum += take(10 + i, i);
    __asm__ volatile("");
}

OUTSIDE void deeper(void) {
    for (int i = 0; i < 5; i++) sum += take(100, -7);
    __asm__ volatile("");
}

OUTSIDE void from_two(void) {
    deeper();
    __asm__ volatile("");
}

OUTSIDE void in_child(void) {
    from_two();
    __asm__ volatile("");
}

OUTSIDE void below_zero(void) {
    sum += take(-1, 0);
    sum += take(-2, 0);
    __asm__ volatile("");
}

OUTSIDE void *in_thread(void *nothing) {
    from_one();
    return nothing;
}

OUTSIDE void *in_storm(void *times) {
    for (long i = *(long *)times; i > 0; i--) sum += take(i & 7, 0);
    return NULL;
}

static void in_threads(void *(*function)(void *), void *argument) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, function, argument);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

OUTSIDE void writes(void) {
    int nowhere = open("/dev/null", O_WRONLY);
    for (int i = 1; i <= 20; i++)
        if (write(nowhere, "0123456789012345678901234567890", i) != i) exit(3);
    close(nowhere);
}

/* What <sys/sdt.h> generates for DTRACE_PROBE: a nop, and a note with its address and the locations of its arguments. */
__asm__(".section .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n.previous");
__attribute__((section(".probes"), used)) volatile unsigned short step_semaphore;
#define PROBE(name, semaphore, arguments, ...)                                                                       \
    __asm__ volatile("990: nop\n.pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n"                                \
                     ".4byte 992f-991f, 994f-993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n"                        \
                     "993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte " semaphore "\n"                                 \
                     ".asciz \"warp\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n994: .balign 4\n.popsection" ::__VA_ARGS__)

OUTSIDE int static_points(void) {
    int hits_seen = 0;
    long in_memory[2] = {0, 0};
    for (int i = 1; i <= 7; i++) {
        hits_seen += step_semaphore > 0;
        in_memory[1] = 1000 * i;
        PROBE("step", "step_semaphore", "8@%0 -4@%1 8@8(%2) 4@$5 8f@%%xmm0", "r"((long)i), "r"(-i), "r"(in_memory), "m"(in_memory));
    }
    /* The same tracepoint at another location, with its argument elsewhere. */
    PROBE("step", "step_semaphore", "8@%0 -4@%1", "r"(100L), "r"(0));
    PROBE("quiet", "0", "", "r"(0L));
    return hits_seen;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "storm")) {
        long times = atol(argv[2]);
        in_threads(in_storm, &times);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "usdt")) {
        printf("%d\n", static_points());
        return 0;
    }
    from_one();
    from_two();
    in_threads(in_thread, NULL);
    pid_t child = fork();
    if (child == 0) {
        in_child();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    below_zero();
    for (int i = 1; i <= 4; i++) sum += many(1, 2, 3, 4, 5, 6, 70 + i, 800);
    for (int i = 1; i <= 6; i++) sum += run(i);
    sum += pick_first() + pick_second() + pick_second();
    writes();
    return 0;
}
