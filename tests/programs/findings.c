/* A program with a known bottleneck, or none.
 *
 *   findings THREAD...     each THREAD is a script, which a thread of its own follows; the first one is the main thread's
 *
 * A script is a list of steps, separated by blanks. `20( a b )` repeats steps.
 *
 *   device:N     uses this GPU from now on; at the beginning, if at all
 *   rank:N       runs in a process of its own, as this rank; the first step, and then that of all threads
 *   kernel:NAME  launches a kernel on the thread's stream;  late:NAME  the same, by cuLaunchKernelEx
 *   copy:BYTES   copies pinned memory to the GPU on the thread's stream
 *   sync         waits for the thread's stream
 *   nap:US  compute:US  load:US  import:US     sleeps, or computes for this much CPU time, in a function of that name
 *   post:N  take:N     adds to a counter, and waits until it can subtract from it
 *   pool         waits until the main thread has ended, as a thread of OpenBLAS waits for work
 *
 * At the end, prints the wall time in each of these functions: `compute 1234` in nanoseconds, summed over threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

typedef struct {
    dim3 grid, block;
    unsigned shared;
    CUstream stream;
    void *attributes;
    unsigned count;
} LaunchConfig;
CUresult cuLaunchKernelEx(const LaunchConfig *, CUfunction, void **, void **);
CUresult cuMemAllocHost_v2(void **, size_t);
CUresult cuStreamSynchronize(CUstream);

enum { MOST_BYTES = 1 << 24, POSTS = 8 };
enum { NAP, COMPUTE, LOAD, IMPORT, TAKE, FUNCTIONS };
static const char *const names[FUNCTIONS] = {"nap", "compute", "load", "import_module", "take"};
static long spent[FUNCTIONS];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int posts[POSTS], ended;

struct thread {
    const char *script;
    CUmodule module;
    CUstream stream;
    CUdeviceptr memory;
    void *host;
    int device;
};

static void check(int error) {
    if (error) _exit(3);
}

/* Inlined, so that the functions below are the innermost ones. */
__attribute__((always_inline)) static inline long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

#define SPIN(us) \
    for (long end = now(CLOCK_THREAD_CPUTIME_ID) + (us) * 1000; now(CLOCK_THREAD_CPUTIME_ID) < end;) {}

__attribute__((noinline)) void nap(long us) {
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&left, &left)) {}
}
__attribute__((noinline)) void compute(long us) { SPIN(us) }
__attribute__((noinline)) void load(long us) { SPIN(us) __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void import_module(long us) { SPIN(us) __asm__ volatile("nop"); }

__attribute__((noinline)) void take(long number) {
    pthread_mutex_lock(&mutex);
    while (posts[number] == 0) pthread_cond_wait(&changed, &mutex);
    posts[number]--;
    pthread_mutex_unlock(&mutex);
}

static void post(long number) {
    pthread_mutex_lock(&mutex);
    posts[number]++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

__attribute__((noinline)) void blas_thread_server(void) {
    pthread_mutex_lock(&mutex);
    while (!ended) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void timed(int function, void (*run)(long), long argument) {
    long start = now(CLOCK_MONOTONIC);
    run(argument);
    __atomic_fetch_add(&spent[function], now(CLOCK_MONOTONIC) - start, __ATOMIC_RELAXED);
}

/* Blocks that fill any GPU for whole waves. */
enum { BLOCKS = 132 * 8 * 4, THREADS = 256 };

__attribute__((noinline)) static void launch(struct thread *thread, const char *name, int late) {
    CUfunction function;
    LaunchConfig config = {{BLOCKS, 1, 1}, {THREADS, 1, 1}, 0, thread->stream, NULL, 0};
    check(cuModuleGetFunction(&function, thread->module, name));
    if (late) check(cuLaunchKernelEx(&config, function, NULL, NULL));
    else check(cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, thread->stream, NULL, NULL));
}

static void begin(struct thread *thread) {
    CUcontext context;
    check(cuDevicePrimaryCtxRetain(&context, thread->device) || cuCtxSetCurrent(context));
    check(cuModuleLoadData(&thread->module, "") || cuStreamCreate(&thread->stream, 1));
    check(cuMemAlloc_v2(&thread->memory, MOST_BYTES) || cuMemAllocHost_v2(&thread->host, MOST_BYTES));
}

static void step(struct thread *thread, const char *word) {
    const char *colon = strchr(word, ':');
    long number = colon ? atol(colon + 1) : 0;
#define IS(name) (!strncmp(word, name, sizeof name - 1))
    if (IS("kernel:")) launch(thread, colon + 1, 0);
    else if (IS("late:")) launch(thread, colon + 1, 1);
    else if (IS("copy:")) check(cuMemcpyHtoDAsync_v2(thread->memory, thread->host, number, thread->stream));
    else if (IS("sync")) check(cuStreamSynchronize(thread->stream));
    else if (IS("nap:")) timed(NAP, nap, number);
    else if (IS("compute:")) timed(COMPUTE, compute, number);
    else if (IS("load:")) timed(LOAD, load, number);
    else if (IS("import:")) timed(IMPORT, import_module, number);
    else if (IS("take:")) timed(TAKE, take, number);
    else if (IS("post:")) post(number);
    else if (IS("pool")) blas_thread_server();
    else check(1);
}

/* Runs a script up to its end or an unmatched `)`, and returns what follows. */
static const char *follow(struct thread *thread, const char *script) {
    char word[64];
    int length;
    while (sscanf(script, " %63s%n", word, &length) == 1) {
        script += length;
        if (!strcmp(word, ")")) return script;
        if (word[strlen(word) - 1] == '(') {
            const char *after = script;
            for (long round = atol(word); round > 0; round--) after = follow(thread, script);
            script = after;
        } else if (!strncmp(word, "device:", 7)) {
            thread->device = atoi(word + 7);
        } else {
            if (!thread->module && strcmp(word, "pool") && strncmp(word, "import:", 7)) begin(thread);
            step(thread, word);
        }
    }
    return script;
}

static void *run(void *argument) {
    struct thread *thread = argument;
    follow(thread, thread->script);
    return NULL;
}

static void run_rank(const char *script) {
    char word[64];
    int length;
    struct thread thread = {0};
    sscanf(script, " %63s%n", word, &length);
    setenv("RANK", word + 5, 1);
    setenv("CUDA_VISIBLE_DEVICES", word + 5, 1);
    check(cuInit(0));
    follow(&thread, script + length);
    exit(0);
}

int main(int argc, char **argv) {
    struct thread threads[32] = {0};
    pthread_t ids[32];
    if (argc < 2 || argc > 32) return 2;
    if (!strncmp(argv[1], "rank:", 5)) {
        for (int n = 1; n < argc; n++)
            if (fork() == 0) run_rank(argv[n]);
        for (int status; wait(&status) > 0;)
            if (status) return 1;
        return 0;
    }
    check(cuInit(0));
    for (int n = 1; n < argc; n++) {
        threads[n].script = argv[n];
        if (n > 1) pthread_create(&ids[n], NULL, run, &threads[n]);
    }
    run(&threads[1]);
    pthread_mutex_lock(&mutex);
    ended = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    for (int n = 2; n < argc; n++) pthread_join(ids[n], NULL);
    for (int n = 0; n < FUNCTIONS; n++) printf("%s %ld\n", names[n], spent[n]);
    return 0;
}
