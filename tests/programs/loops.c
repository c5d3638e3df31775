/* Loops whose iterations are known.
 *
 *   loops SHAPE STEPS
 *
 * At the end, prints for each step `THREAD BEFORE AFTER`: the times before and after its first launch, by CLOCK_MONOTONIC.
 *
 *   plain     a copy, forward with 2 launches, backward with 1, a memset
 *   single    one launch
 *   nested    a copy, then 4 micro-batches of forward and backward, then update
 *   same      4 micro-batches, then update: both loops begin with the same launch
 *   jitter    launches that are not in each step, at its beginning, in it and at its end
 *   warmup    the first steps also launch something else; the program computes before
 *   slow      a copy, 20 ms of loading, forward, a wait; step 7 loads for 300 ms, the first two for 100 ms
 *   outliers  a copy, 2 ms in parse, forward, a wait; step 10 is 300 ms in parse, step 15 sleeps for 300 ms in read_file, step 20
 *             also launches the kernel `longer`
 *   early     ends in the middle of a step
 *   changes   every quarter has another body
 *   threads   two threads, each of which has all steps
 *   replay    each step launches a graph
 *   straight  no loop: some launches, from several lines and functions, and a recursion */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"

enum { MOST = 4096 };
struct thread {
    int number, pending, noted;
    long before[MOST], after[MOST];
};
static CUfunction function, longer;
static CUdeviceptr memory;
static CUcontext context;
static CUgraphExec graph_exec;

static void check(int error) {
    if (error) _Exit(3);
}
static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

#define FUNCTION __attribute__((noinline)) static void
#define LAUNCH(thread, call) \
    do { \
        long before = now(); \
        check(call); \
        if ((thread)->pending) { \
            check((thread)->noted >= MOST); \
            (thread)->before[(thread)->noted] = before, (thread)->after[(thread)->noted++] = now(); \
            (thread)->pending = 0; \
        } \
    } while (0)

FUNCTION begin(struct thread *thread) { thread->pending = 1; }
FUNCTION launch(struct thread *thread) {
    LAUNCH(thread, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}
FUNCTION copy(struct thread *thread) {
    static char bytes[256];
    LAUNCH(thread, cuMemcpyHtoD_v2(memory, bytes, sizeof bytes));
}
FUNCTION clear(struct thread *thread) { LAUNCH(thread, cuMemsetD8Async(memory, 0, 256, NULL)); }
FUNCTION replay(struct thread *thread) { LAUNCH(thread, cuGraphLaunch(graph_exec, NULL)); }
FUNCTION forward(struct thread *thread) {
    launch(thread);
    launch(thread);
}
FUNCTION backward(struct thread *thread) { launch(thread); __asm__ volatile("" ::: "memory"); }
FUNCTION update(struct thread *thread) { launch(thread); __asm__ volatile("nop"); }
FUNCTION report(struct thread *thread) { launch(thread); __asm__ volatile("nop; nop"); }
FUNCTION load(int ms) {
    long end = now() + ms * 1000000L;
    while (now() < end) {}
}
FUNCTION parse(int ms) {
    struct timespec start, time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    while ((time.tv_sec - start.tv_sec) * 1000000000L + time.tv_nsec - start.tv_nsec < ms * 1000000L);
}
FUNCTION read_file(int ms) {
    struct timespec time = {.tv_nsec = ms * 1000000L};
    nanosleep(&time, NULL);
    __asm__ volatile("" ::: "memory");
}
FUNCTION micro_batch(struct thread *thread) {
    forward(thread);
    backward(thread);
}
FUNCTION recurse(struct thread *thread, int depth) {
    launch(thread);
    if (depth) recurse(thread, depth - 1);
    __asm__ volatile("" ::: "memory");
}

FUNCTION plain(struct thread *thread, int steps) {
    for (int step = 0; step < steps; step++) {
        begin(thread);
        copy(thread);
        forward(thread);
        backward(thread);
        clear(thread);
    }
}
FUNCTION single(struct thread *thread, int steps) {
    for (int step = 0; step < steps; step++) {
        begin(thread);
        update(thread);
    }
}
FUNCTION nested(struct thread *thread, int steps) {
    for (int step = 0; step < steps; step++) {
        begin(thread);
        copy(thread);
        for (int micro = 0; micro < 4; micro++) micro_batch(thread);
        update(thread);
    }
}
FUNCTION same(struct thread *thread, int steps) {
    for (int step = 0; step < steps; step++) {
        begin(thread);
        for (int micro = 0; micro < 4; micro++) {
            forward(thread);
            backward(thread);
        }
        update(thread);
    }
}
FUNCTION jitter(struct thread *thread, int steps) {
    for (int step = 0; step < steps; step++) {
        begin(thread);
        if (step % 5 < 2) report(thread);
        forward(thread);
        if (step % 3 == 1) copy(thread);
        backward(thread);
        if (step % 7 < 3) clear(thread);
    }
}
FUNCTION warmup(struct thread *thread, int steps) {
    launch(thread);
    forward(thread);
    for (int step = 0; step < steps; step++) {
        begin(thread);
        copy(thread);
        if (step < 3) report(thread);
        forward(thread);
        if (step >= 2) update(thread);
    }
}
FUNCTION slow(struct thread *thread, int steps) {
    for (int step = 0; step < steps; step++) {
        begin(thread);
        copy(thread);
        load(step < 2 ? 100 : step == 6 ? 300 : 20);
        forward(thread);
        check(cuCtxSynchronize());
    }
}
FUNCTION outliers(struct thread *thread, int steps) {
    for (int step = 1; step <= steps; step++) {
        begin(thread);
        copy(thread);
        parse(step == 10 ? 300 : 2);
        if (step == 15) read_file(300);
        forward(thread);
        if (step == 20) check(cuLaunchKernel(longer, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
        check(cuCtxSynchronize());
    }
}
FUNCTION early(struct thread *thread, int steps) {
    for (int step = 0; step < steps; step++) {
        begin(thread);
        copy(thread);
        forward(thread);
        if (step == steps - 1) return;
        backward(thread);
    }
}
FUNCTION changes(struct thread *thread, int steps) {
    for (int step = 0; step < steps; step++) {
        begin(thread);
        copy(thread);
        switch (4 * step / steps) {
            case 0: forward(thread); break;
            case 1: backward(thread), clear(thread); break;
            case 2: micro_batch(thread); break;
            default: report(thread), update(thread), copy(thread);
        }
    }
}
FUNCTION replays(struct thread *thread, int steps) {
    CUgraph graph;
    CUstream stream;
    check(cuStreamCreate(&stream, 1) || cuStreamBeginCapture_v2(stream, 0));
    for (int n = 0; n < 3; n++) check(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    check(cuStreamEndCapture(stream, &graph) || cuGraphInstantiateWithFlags(&graph_exec, graph, 0));
    for (int step = 0; step < steps; step++) {
        begin(thread);
        replay(thread);
    }
}
FUNCTION straight(struct thread *thread, int steps) {
    (void)steps;
    begin(thread);
    copy(thread);
    forward(thread);
    forward(thread);
    backward(thread);
    micro_batch(thread);
    recurse(thread, 20);
    micro_batch(thread);
    forward(thread);
    backward(thread);
    recurse(thread, 10);
    report(thread);
    report(thread);
    report(thread);
    report(thread);
}

static int number_of_steps;
static void *in_thread(void *argument) {
    check(cuCtxSetCurrent(context));
    plain(argument, number_of_steps);
    return NULL;
}

int main(int argc, char **argv) {
    static struct thread threads[2] = {{.number = 0}, {.number = 1}};
    static const struct {
        const char *name;
        void (*run)(struct thread *, int);
    } shapes[] = {{"plain", plain}, {"single", single}, {"nested", nested}, {"same", same}, {"jitter", jitter},
                  {"warmup", warmup}, {"slow", slow}, {"outliers", outliers}, {"early", early}, {"changes", changes}, {"replay", replays},
                  {"straight", straight}};
    CUmodule module;
    if (argc < 3) return 2;
    number_of_steps = atoi(argv[2]);
    check(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
    check(cuModuleLoadData(&module, "") || cuModuleGetFunction(&function, module, "work") || cuModuleGetFunction(&longer, module, "longer") ||
          cuMemAlloc_v2(&memory, 4096));
    if (!strcmp(argv[1], "threads")) {
        pthread_t ids[2];
        for (int n = 0; n < 2; n++) check(pthread_create(&ids[n], NULL, in_thread, &threads[n]));
        for (int n = 0; n < 2; n++) pthread_join(ids[n], NULL);
    }
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        if (!strcmp(argv[1], shapes[n].name)) shapes[n].run(&threads[0], number_of_steps);
    check(cuCtxSynchronize());
    for (int n = 0; n < 2; n++)
        for (int step = 0; step < threads[n].noted; step++)
            printf("%d %ld %ld\n", n, threads[n].before[step], threads[n].after[step]);
    return 0;
}
