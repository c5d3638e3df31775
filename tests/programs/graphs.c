/* CUDA graphs: every kernel's name is the call path that created its node.
 *
 *   graphs REPLAYS SCENARIO...
 *
 * A scenario creates nodes from 40 call paths, `SCENARIO>layerL>blockB`, and launches their graph REPLAYS times from
 * another function. Each path creates three kernels named `graph:PATH`, a copy of COPY_BYTES + 16 * N bytes and a memset of
 * MEMSET_BYTES + 16 * N bytes, where N is 40 * the scenario's number + 5 * L + B; without copies if nodes are added
 * explicitly. Scenarios:
 *
 *   captured   one graph, launched by `replay_captured`
 *   twice      one graph, two executables, launched by `replay_first` and `replay_second`
 *   updated    two graphs: one executable is instantiated from `updated` and updated from `updating` and back, between
 *              launches by `replay_updated`; nothing waits for the launches
 *   child      a graph added to the graph `parent` twice, launched by `replay_child`
 *   other      captured by another thread than the one that launches it, in `replay_other`
 *   added      nodes added explicitly, launched by `replay_added`
 *   renewed    captured, launched by `replay_renewed` and destroyed REPLAYS times
 *
 * Prints `operations N`, the number of operations that the launched graphs ran. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

enum { LAYERS = 8, BLOCKS = 5, KERNELS = 3, PER_PATH = KERNELS + 2 };
enum { COPY_BYTES = 1 << 16, MEMSET_BYTES = 1 << 17, MEMORY = 1 << 20 };
enum { CAPTURED, TWICE, UPDATED, UPDATING, CHILD, PARENT, OTHER, ADDED, RENEWED, SCENARIOS };

/* What the functions below create nodes for. */
struct work {
    const char *scenario;
    int number, layer;
    CUstream stream;
    CUgraph graph; /* add the nodes here instead of capturing */
};

static CUmodule module;
static void **fat_binary;
static CUdeviceptr memory;
static char host[MEMORY];
static long operations;

static void check(int error, const char *what) {
    if (error) {
        fprintf(stderr, "graphs: %s: error %d\n", what, error);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

struct kernel {
    CUfunction function;
    char key; /* its address stands for the host function */
    char name[64];
};
static struct kernel kernels[SCENARIOS][LAYERS][BLOCKS];

static struct kernel *kernel_of(struct work *w, int block) {
    struct kernel *k = &kernels[w->number][w->layer][block];
    if (!k->function) {
        snprintf(k->name, sizeof k->name, "graph:%s>layer%d>block%d", w->scenario, w->layer, block);
        CHECK(cuModuleGetFunction(&k->function, module, k->name));
        __cudaRegisterFunction(fat_binary, &k->key, k->name, k->name, -1, NULL, NULL, NULL, NULL, NULL);
    }
    return k;
}

/* All calls are inlined into the function whose name is in the path. */
static inline __attribute__((always_inline)) void create_nodes(struct work *w, int block) {
    struct kernel *k = kernel_of(w, block);
    size_t number = (size_t)(w->number * LAYERS * BLOCKS + w->layer * BLOCKS + block);
    if (w->graph) {
        CUgraphNode node;
        CUDA_KERNEL_NODE_PARAMS params = {.func = k->function, .grid = {1, 1, 1}, .block = {32, 1, 1}};
        CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 1, .width = MEMSET_BYTES + 16 * number, .height = 1};
        for (int i = 0; i < KERNELS; i++) CHECK(cuGraphAddKernelNode_v2(&node, w->graph, NULL, 0, &params));
        CHECK(cuGraphAddMemsetNode(&node, w->graph, NULL, 0, &set, NULL));
        return;
    }
    for (int i = 0; i < KERNELS; i++) {
        if (i & 1)
            CHECK(cudaLaunchKernel(&k->key, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, w->stream));
        else
            CHECK(cuLaunchKernel(k->function, 1, 1, 1, 32, 1, 1, 0, w->stream, NULL, NULL));
    }
    CHECK(cudaMemcpyAsync((void *)memory, host, COPY_BYTES + 16 * number, cudaMemcpyHostToDevice, w->stream));
    CHECK(cuMemsetD8Async(memory, 1, MEMSET_BYTES + 16 * number, w->stream));
}

#define PART __attribute__((noinline, noclone)) static void
#define BLOCK(n) PART block##n(struct work *w) { create_nodes(w, n); }
#define LAYER(n)       \
    PART layer##n(struct work *w) { \
        w->layer = n;  \
        block0(w);     \
        block1(w);     \
        block2(w);     \
        block3(w);     \
        block4(w);     \
    }
BLOCK(0) BLOCK(1) BLOCK(2) BLOCK(3) BLOCK(4)
LAYER(0) LAYER(1) LAYER(2) LAYER(3) LAYER(4) LAYER(5) LAYER(6) LAYER(7)

static inline __attribute__((always_inline)) void all_layers(struct work *w) {
    layer0(w);
    layer1(w);
    layer2(w);
    layer3(w);
    layer4(w);
    layer5(w);
    layer6(w);
    layer7(w);
}

#define SCENARIO(name, NUMBER)                                        \
    PART name(struct work *w) {                                       \
        w->scenario = __func__;                                       \
        w->number = NUMBER;                                           \
        all_layers(w);                                                \
    }
SCENARIO(captured, CAPTURED)
SCENARIO(twice, TWICE)
SCENARIO(updated, UPDATED)
SCENARIO(updating, UPDATING)
SCENARIO(child, CHILD)
SCENARIO(parent, PARENT)
SCENARIO(other, OTHER)
SCENARIO(added, ADDED)
SCENARIO(renewed, RENEWED)

static CUgraph capture(void (*scenario)(struct work *)) {
    struct work w = {0};
    CUgraph graph;
    CHECK(cuStreamCreate(&w.stream, 0));
    CHECK(cuStreamBeginCapture_v2(w.stream, 0));
    scenario(&w);
    CHECK(cuStreamEndCapture(w.stream, &graph));
    CHECK(cuStreamDestroy_v2(w.stream));
    return graph;
}

static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec;
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

#define REPLAY(name)                                                                    \
    __attribute__((noinline, noclone)) static void name(CUgraphExec exec, long times, long nodes) { \
        for (long i = 0; i < times; i++) CHECK(cudaGraphLaunch(exec, NULL));            \
        operations += times * nodes;                                                    \
    }
REPLAY(replay_captured)
REPLAY(replay_first)
REPLAY(replay_second)
REPLAY(replay_updated)
REPLAY(replay_child)
REPLAY(replay_other)
REPLAY(replay_added)
REPLAY(replay_renewed)

static void *capture_other(void *context) {
    CHECK(cuCtxSetCurrent(context));
    return instantiate(capture(other));
}

static void run(const char *scenario, long replays, CUcontext context) {
    const long nodes = LAYERS * BLOCKS * PER_PATH;
    if (!strcmp(scenario, "captured")) {
        replay_captured(instantiate(capture(captured)), replays, nodes);
    } else if (!strcmp(scenario, "twice")) {
        CUgraph graph = capture(twice);
        CUgraphExec first = instantiate(graph), second = instantiate(graph);
        CHECK(cudaGraphDestroy(graph));
        replay_first(first, replays, nodes);
        replay_second(second, replays, nodes);
    } else if (!strcmp(scenario, "updated")) {
        CUgraph graphs[] = {capture(updated), capture(updating)};
        CUgraphExec exec = instantiate(graphs[0]);
        CUgraphExecUpdateResultInfo result;
        for (long i = 0; i < replays; i++) {
            CHECK(cuGraphExecUpdate_v2(exec, graphs[i & 1], &result));
            replay_updated(exec, 1, nodes);
        }
    } else if (!strcmp(scenario, "child")) {
        CUgraph whole = capture(parent), part = capture(child);
        CUgraphNode node;
        CHECK(cudaGraphAddChildGraphNode(&node, whole, NULL, 0, part));
        CHECK(cuGraphAddChildGraphNode(&node, whole, NULL, 0, part));
        CHECK(cudaGraphDestroy(part));
        replay_child(instantiate(whole), replays, 3 * nodes);
    } else if (!strcmp(scenario, "other")) {
        pthread_t thread;
        void *exec;
        CHECK(pthread_create(&thread, NULL, capture_other, context));
        CHECK(pthread_join(thread, &exec));
        replay_other(exec, replays, nodes);
    } else if (!strcmp(scenario, "added")) {
        struct work w = {0};
        CHECK(cuGraphCreate(&w.graph, 0));
        added(&w);
        replay_added(instantiate(w.graph), replays, nodes - LAYERS * BLOCKS);
    } else if (!strcmp(scenario, "renewed")) {
        for (long i = 0; i < replays; i++) {
            CUgraph graph = capture(renewed);
            CUgraphExec exec = instantiate(graph);
            CHECK(cudaGraphDestroy(graph));
            replay_renewed(exec, 1, nodes);
            CHECK(cudaGraphExecDestroy(exec));
        }
    } else {
        check(1, scenario);
    }
}

int main(int argc, char **argv) {
    CUcontext context;
    long replays = argc > 2 ? atol(argv[1]) : 0;
    check(replays <= 0, "usage: graphs REPLAYS SCENARIO...");
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ""));
    CHECK(cuMemAlloc_v2(&memory, MEMORY));
    fat_binary = __cudaRegisterFatBinary("");
    for (int i = 2; i < argc; i++) run(argv[i], replays, context);
    __cudaRegisterFatBinaryEnd(fat_binary);
    CHECK(cudaDeviceSynchronize());
    printf("operations %ld\n", operations);
    return 0;
}
