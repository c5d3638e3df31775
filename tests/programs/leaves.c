/* Calls that never return, and calls after them.
 *
 *   leaves wait     makes three calls, prints its pid and waits in cudaDeviceSynchronize, as long as the simulator's script says
 *   leaves exit     a thread ends by pthread_exit within `quits`; then the process exits within `ends`
 *   leaves exec     execs `true` within `becomes`
 *   leaves jump     longjmp out of `leaps` 40 times, each time through two calls, with a memset of i bytes after each; then a
 *                   signal handler jumps out of cudaDeviceSynchronize, and memsets of 1001 to 1010 bytes follow
 *   leaves tail     calls `jumps_on` 20 times, which ends with a jump to `goes_on`; 7 memsets in that */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "cuda.h"

static jmp_buf back;
static sigjmp_buf out;
static void *memory;

static void check(int status) {
    if (status) {
        fprintf(stderr, "leaves: status %d\n", status);
        _exit(1);
    }
}

__attribute__((noinline)) void leaps_within(int i) {
    check(cudaMemset(memory, 1, 500 + i));
    longjmp(back, i);
}

__attribute__((noinline)) void leaps(int i) {
    leaps_within(i);
    __asm__ volatile("");
}

__attribute__((noinline)) void quits(void) {
    check(cudaMemset(memory, 1, 701));
    pthread_exit(NULL);
}

__attribute__((noinline)) void ends(void) {
    check(cudaMemset(memory, 1, 702));
    exit(3);
}

__attribute__((noinline)) void becomes(void) {
    execlp("true", "true", NULL);
    __asm__ volatile("");
}

/* One return for both functions. */
void jumps_on(int i);
__asm__(".text\n.globl jumps_on\n.type jumps_on,@function\njumps_on:\n\tendbr64\n\tpush %rbx\n\tpop %rbx\n\tjmp goes_on\n"
        ".size jumps_on,.-jumps_on\n");

__attribute__((noinline, used)) void goes_on(int i) {
    for (int j = 0; j < 7; j++) check(cudaMemset(memory, 1, i));
}

static void *thread(void *unused) {
    quits();
    return unused;
}

static void jump_out(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

static void jump(void) {
    for (volatile int i = 1; i <= 40; i++) {
        if (!setjmp(back)) leaps(i);
        check(cudaMemset(memory, 1, i));
    }
    signal(SIGALRM, jump_out);
    if (!sigsetjmp(out, 1)) {
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 100000}}, NULL);
        cudaDeviceSynchronize();
    }
    for (int i = 1001; i <= 1010; i++) check(cudaMemset(memory, 1, i));
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    check(cudaFree(NULL));
    check(cudaMalloc(&memory, 4096));
    check(cudaMemset(memory, 1, 700));
    if (!strcmp(argv[1], "wait")) {
        printf("%d\n", getpid());
        fflush(stdout);
        check(cudaDeviceSynchronize());
    } else if (!strcmp(argv[1], "exit")) {
        pthread_t other;
        pthread_create(&other, NULL, thread, NULL);
        pthread_join(other, NULL);
        ends();
    } else if (!strcmp(argv[1], "exec")) {
        becomes();
        return 1;
    } else if (!strcmp(argv[1], "tail")) {
        for (int i = 1; i <= 20; i++) jumps_on(i);
    } else {
        jump();
    }
    return 0;
}
