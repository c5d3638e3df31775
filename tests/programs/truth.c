/* The ground-truth program: every kernel's name is the call path that launched it.
 *
 *   truth PROCESSES THREADS STREAMS DEVICES LAUNCHES_PER_THREAD [--runtime|--driver|--mixed] [--graphs] [--kernels]
 *
 * Each thread takes PATHS pseudo-random call paths, the same in every run. A function on the path appends its own name
 * while it is active, and the leaf launches a kernel named `truth:worker>a>c>b>leaf2`, outermost first. Every 16th
 * launch is a copy and every 32nd a memset instead (not with --kernels); their byte counts are unique to the path, and
 * with TRUTH_COPIES=FILE each process appends a line `copy|memset BYTES PATH` for each one it used. With --graphs every
 * 50th launch is a graph of NODES kernels, captured and launched at the same leaf, all with the path's name.
 * Additional processes are fork + exec of this program. Prints `launched N`, the number of API calls that succeeded. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

enum { PATHS = 64, DEEPEST = 12, SHALLOWEST = 3, NODES = 3, MAX_STREAMS = 64, MAX_DEVICES = 16 };
enum { COPY_BYTES = 4096, MEMSET_BYTES = 65536, MEMORY = 1 << 20 };
enum mode { RUNTIME, DRIVER, MIXED };

/* What a path needs to launch, created on first use. */
struct target {
    unsigned long hash;
    CUfunction function;
    char key; /* its address stands for the host function */
    CUgraphExec graph;
    int copied, set;
    char name[256];
};

struct walker {
    int device;
    long launched;
    unsigned long count;
    CUmodule module;
    CUstream stream;
    CUdeviceptr memory;
    const unsigned char *steps; /* the functions still to call */
    int path;
    const char *active[DEEPEST + 2];
    int depth;
    unsigned long hash;
    struct target targets[PATHS];
};

static int processes, threads, streams, devices;
static long launches;
static enum mode mode = MIXED;
static int graphs, only_kernels;
static unsigned char steps[PATHS][DEEPEST + 1];
static CUstream stream_of[MAX_DEVICES][MAX_STREAMS];
static CUdeviceptr memory_of[MAX_DEVICES];
static CUcontext context_of[MAX_DEVICES];
static void **fat_binary;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
static char host_memory[MEMORY];

static void die(const char *what) {
    fprintf(stderr, "truth: %s\n", what);
    exit(1);
}

/* First use of a path: builds the name from the active functions. */
__attribute__((noinline)) static void make_target(struct walker *w, struct target *t) {
    size_t at = (size_t)snprintf(t->name, sizeof t->name, "truth:");
    for (int i = 0; i < w->depth; i++)
        at += (size_t)snprintf(t->name + at, sizeof t->name - at, "%s%s", i ? ">" : "", w->active[i]);
    if (at >= sizeof t->name) die("a name is too long");
    t->hash = w->hash;
    if (cuModuleGetFunction(&t->function, w->module, t->name)) die("cuModuleGetFunction");
    pthread_mutex_lock(&registering);
    __cudaRegisterFunction(fat_binary, &t->key, t->name, t->name, -1, NULL, NULL, NULL, NULL, NULL);
    pthread_mutex_unlock(&registering);
}

/* Capture is per stream, and threads share streams, so this uses a stream of the walker's own. */
__attribute__((noinline)) static void make_graph(struct target *t) {
    CUstream own;
    CUgraph graph;
    if (cuStreamCreate(&own, 0) || cuStreamBeginCapture_v2(own, 0)) die("cannot capture");
    for (int i = 0; i < NODES; i++)
        if (cuLaunchKernel(t->function, 1, 1, 1, 32, 1, 1, 0, own, NULL, NULL)) die("cannot capture a kernel");
    if (cuStreamEndCapture(own, &graph) || cuGraphInstantiateWithFlags(&t->graph, graph, 0)) die("cannot instantiate");
}

static inline __attribute__((always_inline)) void launch(struct walker *w) {
    struct target *t = &w->targets[w->path];
    if (!t->function) make_target(w, t);
    if (t->hash != w->hash) die("the walk does not match the path's name");
    int use_runtime = mode == RUNTIME || (mode == MIXED && (w->path & 1));
    unsigned long n = w->count++;
    int error;
    if (graphs && n % 50 == 49) {
        if (!t->graph) make_graph(t);
        error = cuGraphLaunch(t->graph, w->stream);
    } else if (!only_kernels && n % 32 == 31) {
        size_t bytes = MEMSET_BYTES + 8 * (size_t)w->path;
        t->set = 1;
        error = use_runtime ? cudaMemsetAsync((void *)w->memory, 1, bytes, w->stream)
                            : cuMemsetD8Async(w->memory, 1, bytes, w->stream);
    } else if (!only_kernels && n % 16 == 15) {
        size_t bytes = COPY_BYTES + 8 * (size_t)w->path;
        t->copied = 1;
        error = use_runtime
                    ? cudaMemcpyAsync((void *)w->memory, host_memory, bytes, cudaMemcpyHostToDevice, w->stream)
                    : cuMemcpyHtoDAsync_v2(w->memory, host_memory, bytes, w->stream);
    } else if (use_runtime) {
        error = cudaLaunchKernel(&t->key, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, w->stream);
    } else {
        error = cuLaunchKernel(t->function, 1, 1, 1, 32, 1, 1, 0, w->stream, NULL, NULL);
    }
    w->launched += error == 0;
}

typedef void step(struct walker *);
static step *const functions[];

/* A function adds its name, does its part, and removes the name again, so no call here is a tail call. */
#define ENTER(w)                                           \
    unsigned long hash_before = (w)->hash;                 \
    (w)->hash = (w)->hash * 1099511628211u ^ (unsigned long)__func__[0] << 8 ^ (unsigned long)__func__[sizeof __func__ - 2]; \
    (w)->active[(w)->depth++] = __func__
#define LEAVE(w)              \
    (w)->hash = hash_before;  \
    (w)->depth--

#define INNER(name)                                                               \
    __attribute__((noinline, noclone)) static void name(struct walker *w) {       \
        ENTER(w);                                                                 \
        functions[*w->steps++](w);                                                \
        LEAVE(w);                                                                 \
    }
#define LEAF(name)                                                                \
    __attribute__((noinline, noclone)) static void name(struct walker *w) {       \
        ENTER(w);                                                                 \
        launch(w);                                                                \
        LEAVE(w);                                                                 \
    }

INNER(a) INNER(b) INNER(c) INNER(d) INNER(e) INNER(f) INNER(g) INNER(h)
LEAF(leaf0) LEAF(leaf1) LEAF(leaf2) LEAF(leaf3)

enum { INNERS = 8, LEAVES = 4 };
static step *const functions[INNERS + LEAVES] = {a, b, c, d, e, f, g, h, leaf0, leaf1, leaf2, leaf3};

static unsigned long next_random(unsigned long *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Paths of 3 to 12 functions, worker included; a function may call itself. */
static void make_paths(void) {
    unsigned long state = 42;
    for (int p = 0; p < PATHS; p++) {
        int inner = SHALLOWEST - 2 + (int)(next_random(&state) % (DEEPEST - SHALLOWEST + 1));
        for (int i = 0; i < inner; i++) steps[p][i] = (unsigned char)(next_random(&state) % INNERS);
        steps[p][inner] = (unsigned char)(INNERS + next_random(&state) % LEAVES);
    }
}

__attribute__((noinline, noclone)) static void *worker(void *argument) {
    struct walker *w = argument;
    if (cuCtxSetCurrent(context_of[w->device]) || cuModuleLoadData(&w->module, "")) die("cannot start a thread");
    w->memory = memory_of[w->device];
    ENTER(w);
    unsigned long state = 7;
    for (long i = 0; i < launches; i++) {
        /* Every path in turn first, then at random. */
        w->path = i < PATHS ? (int)i : (int)(next_random(&state) % PATHS);
        w->steps = steps[w->path];
        w->stream = stream_of[w->device][i % streams];
        functions[*w->steps++](w);
    }
    LEAVE(w);
    if (cuCtxSynchronize()) die("cuCtxSynchronize");
    return NULL;
}

static void write_copies(struct walker *w) {
    const char *path = getenv("TRUTH_COPIES");
    if (!path) return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd < 0) die("cannot open TRUTH_COPIES");
    for (int p = 0; p < PATHS; p++) {
        struct target *t = &w->targets[p];
        if (t->copied) dprintf(fd, "copy %d %s\n", COPY_BYTES + 8 * p, t->name);
        if (t->set) dprintf(fd, "memset %d %s\n", MEMSET_BYTES + 8 * p, t->name);
    }
    close(fd);
}

static long run(void) {
    if (cuInit(0)) die("cuInit");
    fat_binary = __cudaRegisterFatBinary(NULL);
    for (int d = 0; d < devices; d++) {
        if (cuDevicePrimaryCtxRetain(&context_of[d], d) || cuCtxSetCurrent(context_of[d])) die("no such device");
        if (cuMemAlloc_v2(&memory_of[d], MEMORY)) die("cuMemAlloc");
        for (int s = 0; s < streams; s++)
            if (cuStreamCreate(&stream_of[d][s], 0)) die("cuStreamCreate");
    }
    struct walker *walkers = calloc((size_t)threads, sizeof *walkers);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    for (int t = 0; t < threads; t++) {
        walkers[t].device = t % devices;
        if (pthread_create(&ids[t], NULL, worker, &walkers[t])) die("pthread_create");
    }
    long launched = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(ids[t], NULL);
        launched += walkers[t].launched;
        write_copies(&walkers[t]);
    }
    for (int d = 0; d < devices; d++)
        if (cuCtxSetCurrent(context_of[d]) || cuCtxSynchronize()) die("cuCtxSynchronize");
    return launched;
}

int main(int argc, char **argv) {
    int report = -1;
    if (argc < 6) die("usage: truth PROCESSES THREADS STREAMS DEVICES LAUNCHES [--runtime|--driver|--mixed] [--graphs] [--kernels]");
    processes = atoi(argv[1]), threads = atoi(argv[2]), streams = atoi(argv[3]), devices = atoi(argv[4]);
    launches = atol(argv[5]);
    for (int i = 6; i < argc; i++) {
        if (!strcmp(argv[i], "--runtime")) mode = RUNTIME;
        else if (!strcmp(argv[i], "--driver")) mode = DRIVER;
        else if (!strcmp(argv[i], "--mixed")) mode = MIXED;
        else if (!strcmp(argv[i], "--graphs")) graphs = 1;
        else if (!strcmp(argv[i], "--kernels")) only_kernels = 1;
        else if (!strncmp(argv[i], "--report=", 9)) report = atoi(argv[i] + 9), processes = 1;
        else die("unknown option");
    }
    if (processes < 1 || threads < 1 || streams < 1 || streams > MAX_STREAMS || devices < 1 || devices > MAX_DEVICES)
        die("a number is out of range");
    make_paths();

    int pipes[2];
    if (pipe(pipes)) die("pipe");
    for (int p = 1; p < processes; p++) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (child == 0) {
            char option[32];
            char *arguments[argc + 2];
            snprintf(option, sizeof option, "--report=%d", pipes[1]);
            memcpy(arguments, argv, (size_t)argc * sizeof *argv);
            arguments[argc] = option;
            arguments[argc + 1] = NULL;
            execv("/proc/self/exe", arguments);
            _exit(127);
        }
    }
    long launched = run();
    if (report >= 0) return write(report, &launched, sizeof launched) != sizeof launched;
    close(pipes[1]);
    long from_child;
    while (read(pipes[0], &from_child, sizeof from_child) == sizeof from_child) launched += from_child;
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status != 0;
    printf("launched %ld\n", launched);
    return failed;
}
