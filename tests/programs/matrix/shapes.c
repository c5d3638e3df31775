/* C frame layouts: arguments and saved registers, recursion, alloca, arrays of variable length, large and aligned
 * frames, tail calls, callbacks from libc, functions that never return. `shapes MODE N threads` runs them on 8 threads. */
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>

#include "matrix.h"

CASE static long leaf(long n) {
    ACT("plain;middle;leaf");
    return n + 1;
}

/* Values that live across calls: all callee-saved registers are in use, including rbp. */
CASE static long middle(long a, long b, long c, long d, long e, long f) {
    long sum = leaf(a) + leaf(b);
    return sum + a * b + c * d + e * f + leaf(c) * (a + d) * (b + e) * (c - f);
}

CASE static long plain(long n) {
    long sum = middle(n, n + 1, n + 2, n + 3, n + 4, n + 5);
    KEEP;
    return sum + n;
}

CASE static long recursion(int depth) {
    if (!depth) {
        ACT("recursion*101");
        return 0;
    }
    long below = recursion(depth - 1);
    KEEP;
    return below + 1;
}

/* More frames than are kept. */
CASE static long endless(int depth) {
    if (!depth) {
        ACT("cut|endless*601");
        return 0;
    }
    long below = endless(depth - 1);
    KEEP;
    return below + 1;
}

CASE static long with_alloca(int n) {
    volatile char *room = alloca((size_t)n * 16 + 1);
    room[n] = 1;
    ACT("with_alloca");
    return room[n];
}

CASE static long with_array(int n) {
    volatile long room[n];
    room[n - 1] = 1;
    ACT("with_array");
    return room[n - 1];
}

CASE static long with_large_frame(int n) {
    volatile char room[70000];
    room[n] = 1;
    ACT("with_large_frame");
    return room[n];
}

CASE static long with_aligned_frame(int n) {
    volatile char line[64] __attribute__((aligned(64)));
    line[n & 63] = 1;
    ACT("with_aligned_frame");
    return line[n & 63];
}

/* Both: gcc keeps the caller's rsp in r10, then in the frame. */
CASE static long with_aligned_alloca(int n) {
    volatile char line[64] __attribute__((aligned(64)));
    volatile char *room = alloca((size_t)n * 16 + 1);
    line[n & 63] = room[n] = 1;
    ACT("with_aligned_alloca");
    return line[n & 63] + room[n];
}

CASE static long jumped_to(int n) {
    ACT("jumping;jumped_to");
    return n;
}

/* Has no frame, because it ends with a jump. */
CASE static long jumper(int n) {
    ACT("jumping;jumper");
    return jumped_to(n + 1);
}

CASE static long jumping(int n) {
    long there = jumper(n);
    KEEP;
    return there + 1;
}

CASE static int compare(const void *left, const void *right) {
    ACT("with_callback;@system;compare");
    return *(const int *)left - *(const int *)right;
}

CASE static long with_callback(int n) {
    int numbers[] = {n, 3, n + 1, 2};
    qsort(numbers, 4, sizeof *numbers, compare);
    return numbers[0];
}

static jmp_buf back;

/* The call of a function that never returns is its caller's last instruction, so the return address is beyond the caller. */
CASE __attribute__((noreturn)) static void no_return(void) {
    ACT("never_returned_to;no_return");
    longjmp(back, 1);
}

CASE __attribute__((noreturn)) static void never_returned_to(void) {
    no_return();
}

CASE static long through_pointer(long (*function)(int), int n) {
    long there = function(n);
    KEEP;
    return there + 1;
}

CASE static long pointed_at(int n) {
    ACT("through_pointer;pointed_at");
    return n;
}

static volatile long sink;

INLINE void all(void) {
    sink += plain(1);
    sink += recursion(100);
    sink += endless(600);
    sink += with_alloca(5);
    sink += with_array(9);
    sink += with_large_frame(6);
    sink += with_aligned_frame(7);
    sink += with_aligned_alloca(8);
    sink += jumping(1);
    sink += with_callback(4);
    sink += through_pointer(pointed_at, 2);
}

/* All threads share `back`, so only the first one uses it. */
CASE static void escape(void) {
    if (!setjmp(back)) never_returned_to();
    KEEP;
}

CASE static void *worker(void *argument) {
    long left = (long)argument;
    root = ROOT_THREAD;
    enter_thread();
    while (busy ? now() < until : left-- > 0) all();
    KEEP;
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[8];
    start(argc, argv);
    if (argc > 3) {
        for (int i = 0; i < 8; i++)
            if (pthread_create(&threads[i], NULL, worker, (void *)rounds)) abort();
        for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
        return end();
    }
    while (again()) {
        all();
        root = ROOT_MAIN ";escape";
        escape();
        root = ROOT_MAIN;
    }
    return end();
}
