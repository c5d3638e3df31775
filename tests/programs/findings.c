/* A program with a known bottleneck, or none.
 *
 *   findings THREAD...     each THREAD is a script, which a thread of its own follows; the first one is the main thread's
 *
 * A script is a list of steps, separated by blanks. `20( a b )` repeats steps.
 *
 *   device:N     uses this GPU from now on; at the beginning, if at all
 *   rank:N       runs in a process of its own, as this rank; the first step, and then that of all threads
 *   default      uses the default stream, and not one of the thread's own
 *   grid:N  block:N  shared:BYTES     the shape of the kernels from now on; without it they fill any GPU for whole waves
 *   kernel:NAME  launches a kernel on the thread's stream;  late:NAME  the same, by cuLaunchKernelEx
 *   tiny:N       launches N kernels `tiny`, one after another, in another function
 *   capture:N    captures N kernels `work` in a graph;  replay  launches it
 *   copy:BYTES   copies pinned memory to the GPU on the thread's stream;  pageable:BYTES  memory that is not pinned
 *   put:BYTES  get:BYTES     copies to and from the GPU, in calls that wait, from and to memory that is not pinned
 *   sync         waits for the thread's stream;  record:N  await:N  waits for an event on it
 *   nap:US  compute:US  load:US  import:US     sleeps, or computes for this much CPU time, in a function of that name
 *   post:N  take:N     adds to a counter, and waits until it can subtract from it
 *   lock  hold:US      waits for a lock, and computes while it has it, after `post:7`
 *   read  write        waits for a byte from a pipe, and writes one
 *   weights:MIB  buffers:MIB  free     allocates memory on the GPU, in a function of that name, and frees what was last allocated
 *   together     waits until all ranks are there
 *   reduce:BYTES  gather:BYTES     calls an operation of all ranks, as NCCL does, whose kernel takes as long as any other
 *   pool         waits until the main thread has ended, as a thread of OpenBLAS waits for work;  pool:N  as `take:N`
 *   mark:NAME    notes the time
 *
 * At the end, prints when each step of the program ran: `THREAD FUNCTION START END`, by CLOCK_MONOTONIC. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"
#include "nccl_nvtx.h"

typedef struct {
    dim3 grid, block;
    unsigned shared;
    CUstream stream;
    void *attributes;
    unsigned count;
} LaunchConfig;
CUresult cuLaunchKernelEx(const LaunchConfig *, CUfunction, void **, void **);
CUresult cuMemAllocHost_v2(void **, size_t);

enum { MOST_BYTES = 1 << 24, POSTS = 8, HELD = 7, EVENTS = 4, NOTES = 1 << 16, TEXT = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t *ranks;
static int posts[POSTS], ended, ends[2], own_rank, rank_count;

struct thread {
    const char *script;
    int number, device;
    CUmodule module;
    CUstream stream;
    CUdeviceptr memory, last;
    CUevent events[EVENTS];
    CUgraphExec graph;
    void *pinned, *pageable;
    unsigned grid, block, shared;
};

/* When a thread was where. */
static struct note {
    int thread;
    char name[32];
    long start, end;
} notes[NOTES];
static unsigned noted;

static void check(int error) {
    if (error) _exit(3);
}

/* Inlined, so that the functions below are the innermost ones. */
__attribute__((always_inline)) static inline long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void note(const struct thread *thread, const char *name, long start) {
    unsigned at = __atomic_fetch_add(&noted, 1, __ATOMIC_RELAXED);
    check(at >= NOTES);
    notes[at] = (struct note){thread->number, "", start, now(CLOCK_MONOTONIC)};
    snprintf(notes[at].name, sizeof notes[at].name, "%s", name);
}

/* In one write, because ranks share the pipe. */
static void print_notes(void) {
    size_t size = noted * 96UL + 1, length = 0;
    char *text = malloc(size);
    for (unsigned n = 0; n < noted; n++)
        length += snprintf(text + length, size - length, "%d %s %ld %ld\n", notes[n].thread, notes[n].name, notes[n].start,
                           notes[n].end);
    for (size_t done = 0; done < length;) {
        ssize_t written = write(1, text + done, length - done);
        check(written <= 0);
        done += written;
    }
}

#define SPIN(us) \
    for (long end = now(CLOCK_THREAD_CPUTIME_ID) + (us) * 1000; now(CLOCK_THREAD_CPUTIME_ID) < end;) {}
#define STEP __attribute__((noinline)) void

STEP nap(struct thread *thread, long us) {
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    (void)thread;
    while (nanosleep(&left, &left)) {}
}
STEP compute(struct thread *thread, long us) { SPIN(us) (void)thread; }
STEP load(struct thread *thread, long us) { SPIN(us) (void)thread; __asm__ volatile("" ::: "memory"); }
STEP import_module(struct thread *thread, long us) { SPIN(us) (void)thread; __asm__ volatile("nop"); }

STEP take(struct thread *thread, long number) {
    (void)thread;
    pthread_mutex_lock(&mutex);
    while (posts[number] == 0) pthread_cond_wait(&changed, &mutex);
    posts[number]--;
    pthread_mutex_unlock(&mutex);
}
STEP post(struct thread *thread, long number) {
    (void)thread;
    pthread_mutex_lock(&mutex);
    posts[number]++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}
STEP hold(struct thread *thread, long us) {
    pthread_mutex_lock(&held);
    post(thread, HELD);
    SPIN(us)
    pthread_mutex_unlock(&held);
}
STEP wait_for_lock(struct thread *thread, long number) {
    (void)thread, (void)number;
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
}
STEP read_input(struct thread *thread, long number) {
    char byte;
    (void)thread, (void)number;
    check(read(ends[0], &byte, 1) != 1);
}
STEP write_input(struct thread *thread, long number) {
    (void)thread, (void)number;
    check(write(ends[1], "x", 1) != 1);
}
STEP wait_for_ranks(struct thread *thread, long number) {
    (void)thread, (void)number;
    pthread_barrier_wait(ranks);
}
STEP blas_thread_server(struct thread *thread, long number) {
    (void)thread;
    pthread_mutex_lock(&mutex);
    while (number ? posts[number] == 0 : !ended) pthread_cond_wait(&changed, &mutex);
    posts[number] -= number > 0;
    pthread_mutex_unlock(&mutex);
}

/* By the runtime: frames of the driver's functions have no names. */
STEP finish(struct thread *thread, long number) { (void)number; check(cudaStreamSynchronize(thread->stream)); }
STEP record_event(struct thread *thread, long number) { check(cuEventRecord(thread->events[number], thread->stream)); }
STEP await_event(struct thread *thread, long number) { check(cuEventSynchronize(thread->events[number])); }
STEP upload(struct thread *thread, long bytes) {
    check(cuMemcpyHtoDAsync_v2(thread->memory, thread->pinned, bytes, thread->stream));
}
STEP upload_pageable(struct thread *thread, long bytes) {
    check(cuMemcpyHtoDAsync_v2(thread->memory, thread->pageable, bytes, thread->stream));
}
STEP put(struct thread *thread, long bytes) { check(cuMemcpyHtoD_v2(thread->memory, thread->pageable, bytes)); }
STEP get(struct thread *thread, long bytes) { check(cuMemcpyDtoH_v2(thread->pageable, thread->memory, bytes)); }
STEP weights(struct thread *thread, long mib) { check(cuMemAlloc_v2(&thread->last, mib << 20)); }
STEP buffers(struct thread *thread, long mib) { check(cuMemAlloc_v2(&thread->last, mib << 20)); __asm__ volatile(""); }
STEP release(struct thread *thread, long number) { (void)number; check(cuMemFree_v2(thread->last)); }
STEP replay(struct thread *thread, long number) { (void)number; check(cuGraphLaunch(thread->graph, thread->stream)); }

__attribute__((noinline)) static void launch(struct thread *thread, const char *name, int late) {
    CUfunction function;
    LaunchConfig config = {{thread->grid, 1, 1}, {thread->block, 1, 1}, thread->shared, thread->stream, NULL, 0};
    check(cuModuleGetFunction(&function, thread->module, name));
    if (late) check(cuLaunchKernelEx(&config, function, NULL, NULL));
    else
        check(cuLaunchKernel(function, thread->grid, 1, 1, thread->block, 1, 1, thread->shared, thread->stream, NULL, NULL));
}
static void communicate(struct thread *thread, int operation, long bytes, const char *kernel) {
    enum { ALL = 1000 };
    if (!domain) {
        begin_nvtx();
        describe(INIT, ALL, rank_count, own_rank);
    }
    call(operation, ALL, bytes, 0);
    launch(thread, kernel, 0);
}
STEP reduce(struct thread *thread, long bytes) { communicate(thread, ALL_REDUCE, bytes, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"); }
STEP gather(struct thread *thread, long bytes) { communicate(thread, ALL_GATHER, bytes, "ncclDevKernel_AllGather_RING_LL"); }

STEP launch_tiny(struct thread *thread, long kernels) {
    CUfunction function;
    check(cuModuleGetFunction(&function, thread->module, "tiny"));
    while (kernels--)
        check(cuLaunchKernel(function, thread->grid, 1, 1, thread->block, 1, 1, 0, thread->stream, NULL, NULL));
}
STEP capture(struct thread *thread, long kernels) {
    CUgraph graph;
    check(cuStreamBeginCapture_v2(thread->stream, 0));
    while (kernels--) launch(thread, "work", 0);
    check(cuStreamEndCapture(thread->stream, &graph) || cuGraphInstantiateWithFlags(&thread->graph, graph, 0));
}

static void begin(struct thread *thread) {
    CUcontext context;
    check(cuDevicePrimaryCtxRetain(&context, thread->device) || cuCtxSetCurrent(context));
    check(cuModuleLoadData(&thread->module, "") || cuStreamCreate(&thread->stream, 1));
    check(cuMemAlloc_v2(&thread->memory, MOST_BYTES) || cuMemAllocHost_v2(&thread->pinned, MOST_BYTES));
    for (int n = 0; n < EVENTS; n++) check(cuEventCreate(&thread->events[n], 0));
    thread->pageable = calloc(MOST_BYTES, 1);
    /* Whole waves on any GPU. */
    thread->grid = 132 * 8 * 4, thread->block = 256;
}

static const struct {
    const char *word, *name;
    void (*run)(struct thread *, long);
} steps[] = {
    {"nap", "nap", nap},
    {"compute", "compute", compute},
    {"load", "load", load},
    {"import", "import_module", import_module},
    {"take", "take", take},
    {"post", "post", post},
    {"hold", "hold", hold},
    {"lock", "wait_for_lock", wait_for_lock},
    {"read", "read_input", read_input},
    {"write", "write_input", write_input},
    {"together", "wait_for_ranks", wait_for_ranks},
    {"pool", "blas_thread_server", blas_thread_server},
    /* These need a GPU. */
    {"sync", "finish", finish},
    {"record", "record_event", record_event},
    {"await", "await_event", await_event},
    {"copy", "upload", upload},
    {"pageable", "upload_pageable", upload_pageable},
    {"put", "put", put},
    {"get", "get", get},
    {"weights", "weights", weights},
    {"buffers", "buffers", buffers},
    {"free", "release", release},
    {"tiny", "launch_tiny", launch_tiny},
    {"capture", "capture", capture},
    {"replay", "replay", replay},
    {"reduce", "reduce", reduce},
    {"gather", "gather", gather},
};
enum { STEPS = sizeof steps / sizeof *steps, HOST_STEPS = 12 };

static void step(struct thread *thread, char *word) {
    char *colon = strchr(word, ':');
    const char *argument = colon ? colon + 1 : "";
    long number = atol(argument), start;
    int at = 0;
#define IS(name) (!strcmp(word, name))
    if (colon) *colon = 0;
    while (at < STEPS && !IS(steps[at].word)) at++;
    if (!thread->module && at >= HOST_STEPS && !IS("mark")) begin(thread);
    start = now(CLOCK_MONOTONIC);
    if (IS("kernel") || IS("late")) {
        launch(thread, argument, IS("late"));
        note(thread, "launch", start);
    } else if (IS("mark")) note(thread, argument, start);
    else if (IS("default")) thread->stream = NULL;
    else if (IS("grid")) thread->grid = number;
    else if (IS("block")) thread->block = number;
    else if (IS("shared")) thread->shared = number;
    else {
        check(at == STEPS);
        steps[at].run(thread, number);
        note(thread, steps[at].name, start);
    }
}

/* Runs a script up to its end or an unmatched `)`, and returns what follows. */
static const char *follow(struct thread *thread, const char *script) {
    char word[TEXT];
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

static void run_rank(int rank, int ranks, const char *script) {
    char word[TEXT];
    int length;
    struct thread thread = {0};
    own_rank = rank;
    rank_count = ranks;
    sscanf(script, " %63s%n", word, &length);
    setenv("RANK", word + 5, 1);
    setenv("CUDA_VISIBLE_DEVICES", word + 5, 1);
    thread.number = atoi(word + 5);
    check(cuInit(0));
    begin(&thread);
    follow(&thread, script + length);
    print_notes();
    exit(0);
}

static int run_ranks(int count, char **scripts) {
    pthread_barrierattr_t shared;
    ranks = mmap(NULL, sizeof *ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(ranks == MAP_FAILED || pthread_barrierattr_init(&shared));
    check(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) || pthread_barrier_init(ranks, &shared, count));
    for (int n = 0; n < count; n++)
        if (fork() == 0) run_rank(n, count, scripts[n]);
    for (int status; wait(&status) > 0;)
        if (status) return 1;
    return 0;
}

int main(int argc, char **argv) {
    static struct thread threads[32];
    pthread_t ids[32];
    if (argc < 2 || argc > 32) return 2;
    /* It answers its GPU at once, whatever else runs on the machine. */
    setpriority(PRIO_PROCESS, 0, -20);
    if (!strncmp(argv[1], "rank:", 5)) return run_ranks(argc - 1, argv + 1);
    check(cuInit(0) || pipe(ends));
    for (int n = 1; n < argc; n++) {
        threads[n].script = argv[n];
        threads[n].number = n - 1;
        if (n > 1) pthread_create(&ids[n], NULL, run, &threads[n]);
    }
    run(&threads[1]);
    pthread_mutex_lock(&mutex);
    ended = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    for (int n = 2; n < argc; n++) pthread_join(ids[n], NULL);
    print_notes();
    return 0;
}
