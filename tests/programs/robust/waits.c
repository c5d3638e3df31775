/* Waits in known ways, each in a function of its own, and prints how long: `NAME COUNT NANOSECONDS` per line.
 *
 *   waits           naps, reads, polls, a lock, a child process
 *   waits forever   sleeps until it is killed, after `ready`
 *
 * What ends a wait happens only when /proc says that the thread sleeps, so every wait really happens, once. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 5 };

static int ends[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Whether the main thread of a process sleeps. */
static int sleeps(pid_t pid) {
    char path[64], text[256] = "";
    sprintf(path, "/proc/%d/task/%d/stat", pid, pid);
    int file = open(path, O_RDONLY);
    if (file < 0 || read(file, text, sizeof text - 1) < 0) exit(1);
    close(file);
    return strstr(text, ") S ") != NULL;
}

static void await_sleep(pid_t pid) {
    while (!sleeps(pid)) usleep(1000);
}

static void *write_each(void *unused) {
    (void)unused;
    for (int i = 0; i < 2 * TIMES; i++) {
        await_sleep(getpid());
        if (write(ends[1], "x", 1) != 1) exit(1);
    }
    return NULL;
}

static void *hold(void *held) {
    pthread_mutex_lock(&mutex);
    *(volatile int *)held = 1;
    await_sleep(getpid());
    pthread_mutex_unlock(&mutex);
    return NULL;
}

__attribute__((noinline)) static void naps(void) {
    struct timespec time = {0, 20000000};
    for (int i = 0; i < TIMES; i++) nanosleep(&time, NULL);
    __asm__ volatile("");
}

__attribute__((noinline)) static void reads(void) {
    char byte;
    for (int i = 0; i < TIMES; i++)
        if (read(ends[0], &byte, 1) != 1) exit(1);
    __asm__ volatile("");
}

__attribute__((noinline)) static void polls(void) {
    char byte;
    for (int i = 0; i < TIMES; i++) {
        struct pollfd wait = {.fd = ends[0], .events = POLLIN};
        if (poll(&wait, 1, -1) != 1 || read(ends[0], &byte, 1) != 1) exit(1);
    }
    __asm__ volatile("");
}

__attribute__((noinline)) static void locks(void) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    __asm__ volatile("");
}

__attribute__((noinline)) static void awaits_child(void) {
    pid_t parent = getpid(), child = fork();
    if (!child) {
        await_sleep(parent);
        _exit(0);
    }
    if (waitpid(child, NULL, 0) != child) exit(1);
    __asm__ volatile("");
}

static void measure(const char *name, void (*wait)(void), int count) {
    long begin = now();
    wait();
    printf("%s %d %ld\n", name, count, now() - begin);
}

int main(int argc, char **argv) {
    pthread_t thread;
    volatile int held = 0;

    if (argc > 1 && !strcmp(argv[1], "forever")) {
        puts("ready");
        fflush(stdout);
        for (;;) pause();
    }
    if (pipe(ends)) return 1;
    measure("naps", naps, TIMES);
    pthread_create(&thread, NULL, write_each, NULL);
    measure("reads", reads, TIMES);
    measure("polls", polls, TIMES);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, hold, (void *)&held);
    while (!held) sched_yield();
    measure("locks", locks, 1);
    pthread_join(thread, NULL);
    measure("awaits_child", awaits_child, 1);
    return 0;
}
