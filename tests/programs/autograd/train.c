/* Work handed to the threads of a stand-in for PyTorch's autograd: every kernel's name is the path that it belongs under.
 *
 *   train ROUNDS [armed]
 *
 * A name such as `outer|inner>work` is a path: functions of one thread separated by `>`, outermost first, and threads by `|`,
 * each of which handed the work to the next. With `armed`, the program also makes calls that can be distinguished only by a
 * probe on each node: it first makes two calls at the same time, whose work, the kernels `overlap`, cannot be distinguished
 * yet, and waits until the probe is there. Prints `kernels N`.
 *
 * The functions `start`, `call` and `arm` are for train.py, which loads this as a library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../launch_by_name.h"
#include "engine.h"

#define EVALUATE "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE"

enum { LINES = 4 };

__attribute__((noinline)) void work(void *name) { launch(name); }

static inline __attribute__((always_inline)) void backward(const struct work *nodes, int count) {
    engine_backward(nodes, count, (struct work){0, NULL, NULL, 0});
}
#define BACKWARD(...)                                                                                                      \
    const struct work nodes[] = {__VA_ARGS__};                                                                             \
    backward(nodes, sizeof nodes / sizeof *nodes)

/* One call, with work on two devices and on its own thread. */
__attribute__((noinline)) void first(void) {
    BACKWARD({0, work, "first|work"}, {1, work, "first|work"}, {CALLER, work, "first>work"}, {0, work, "first|work"});
}

/* A call that is left by an exception. Its stack is deeper than those of later calls, which shows that it has ended. */
__attribute__((noinline)) void broken(void) {
    volatile char deep[4096];
    deep[0] = 0;
    backward(NULL, 0);
    deep[1] = deep[0];
}

/* The work of the completed call. */
__attribute__((noinline)) void second(void) {
    const struct work node = {1, work, "second|work"};
    engine_backward(&node, 1, (struct work){0, work, "second|work", 0});
}

/* A call within the work of a call, on the same thread. */
__attribute__((noinline)) void inner(void) {
    BACKWARD({0, work, "outer|inner>work"}, {0, work, "outer|inner>work"});
}
__attribute__((noinline)) void nest(void *unused) {
    (void)unused;
    inner();
    launch("outer|nest");
}
__attribute__((noinline)) void outer(void) {
    BACKWARD({0, work, "outer|work"}, {0, nest, NULL}, {0, work, "outer|work"});
}

/* The same, with work on another thread. */
__attribute__((noinline)) void across(void) {
    BACKWARD({1, work, "widely|across|work"}, {0, work, "widely|across>work"});
}
__attribute__((noinline)) void spread(void *unused) {
    (void)unused;
    across();
    launch("widely|spread");
}
__attribute__((noinline)) void widely(void) { BACKWARD({0, spread, NULL}, {1, work, "widely|work"}); }

/* Two calls at the same time. Their nodes run at the same time, too. */
static pthread_barrier_t both;
static const char *left_name, *right_name;
__attribute__((noinline)) void meet(void *name) {
    pthread_barrier_wait(&both);
    launch(name);
    pthread_barrier_wait(&both);
}
__attribute__((noinline)) void left(void) { BACKWARD({0, meet, (void *)left_name}); }
__attribute__((noinline)) void right(void) { BACKWARD({1, meet, (void *)right_name}); }
static void *run_right(void *unused) {
    (void)unused;
    right();
    return NULL;
}
static void at_the_same_time(const char *of_left, const char *of_right) {
    pthread_t thread;
    left_name = of_left, right_name = of_right;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, run_right, NULL);
    left();
    pthread_join(thread, NULL);
}

/* Makes calls that cannot be distinguished, and waits for the probe: a breakpoint. */
void arm(void) {
    const volatile unsigned char *evaluate = dlsym(RTLD_DEFAULT, EVALUATE);
    if (!evaluate) fail("the search for evaluate_function");
    at_the_same_time("overlap", "overlap");
    for (int tries = 0; *evaluate != 0xcc; tries++) {
        if (tries == 60000) fail("the wait for a probe at evaluate_function");
        usleep(1000);
    }
}

/* Calls from several threads. */
static int rounds;
#define LINE(n)                                                                                                            \
    __attribute__((noinline)) void line##n(void) {                                                                         \
        BACKWARD({0, work, "line" #n "|work"}, {1, work, "line" #n "|work"}, {CALLER, work, "line" #n ">work"});           \
    }                                                                                                                      \
    static void *repeat##n(void *unused) {                                                                                 \
        for (int i = 0; i < rounds; i++) line##n();                                                                        \
        return unused;                                                                                                     \
    }
LINE(0)
LINE(1)
LINE(2)
LINE(3)

/* A thread that has nothing to do with it. */
__attribute__((noinline)) void bystander(void) { launch("bystander"); }
static void *repeat_bystander(void *unused) {
    for (int i = 0; i < rounds; i++) bystander();
    return unused;
}

/* For Python: one call, with this work on both devices. */
void call(const char *name, const char *own) {
    BACKWARD({0, work, (void *)name}, {1, work, (void *)name}, {CALLER, work, (void *)own});
}

/* For Python: makes a node, and returns its number. */
unsigned long make(void) { return engine_number(); }

/* For Python: one call, with the work of nodes that were made before, on the devices in turn. */
void differentiate(char *const *names, const unsigned long *numbers, int count) {
    struct work nodes[count];
    for (int i = 0; i < count; i++) nodes[i] = (struct work){i % DEVICES, work, names[i], numbers[i] + 1};
    backward(nodes, count);
}

int main(int count, char **arguments) {
    pthread_t others[LINES + 1];
    void *(*const all[])(void *) = {repeat0, repeat1, repeat2, repeat3, repeat_bystander};
    rounds = atoi(arguments[1]);
    start();
    pthread_create(&others[0], NULL, repeat_bystander, NULL);
    for (int i = 0; i < rounds; i++) {
        broken();
        first();
        second();
        outer();
    }
    pthread_join(others[0], NULL);
    if (count > 2) {
        arm();
        at_the_same_time("left|meet", "right|meet");
        for (int i = 0; i < rounds; i++) widely();
        for (int i = 0; i < LINES + 1; i++) pthread_create(&others[i], NULL, all[i], NULL);
        for (int i = 0; i < LINES + 1; i++) pthread_join(others[i], NULL);
        first();
        outer();
    }
    cudaDeviceSynchronize();
    printf("kernels %d\n", launched);
    return 0;
}
