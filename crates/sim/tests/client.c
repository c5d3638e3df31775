/* A small CUPTI client, built like an injected library, for the tests of the simulated GPU.
 *
 * Enables the launch callbacks in CLIENT_CALLBACKS (`domain:id` pairs; all launches by default) and the kinds kernel,
 * memcpy, peer copy, memset and synchronization; counts what arrives; writes `key value` lines to CLIENT_OUT when the
 * process exits. CLIENT_FLUSH=none: no forced flush at the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KERNEL = 10, MEMCPY = 1, MEMSET = 2, MEMCPY2 = 22, SYNC = 38, BUFFER = 64 << 10 };

typedef void callback(void *, uint32_t, uint32_t, const void *);
typedef void requested(uint8_t **, size_t *, size_t *);
typedef void completed(void *, uint32_t, uint8_t *, size_t, size_t);

uint32_t cuptiGetVersion(uint32_t *);
uint32_t cuptiSubscribe(void **, callback *, void *);
uint32_t cuptiEnableCallback(uint32_t, void *, uint32_t, uint32_t);
uint32_t cuptiActivityRegisterCallbacks(requested *, completed *);
uint32_t cuptiActivityGetNextRecord(uint8_t *, size_t, uint8_t **);
uint32_t cuptiActivityGetNumDroppedRecords(void *, uint32_t, size_t *);
uint32_t cuptiActivityEnable(uint32_t);
uint32_t cuptiActivityFlushAll(uint32_t);
uint32_t cuptiActivityRegisterTimestampCallback(uint64_t (*)(void));

/* cuLaunchKernel, cudaLaunchKernel, copies, memsets, graph launch */
static const char *const all = "1:307 2:211 1:277 1:276 1:278 1:279 2:41 2:31 1:216 2:49 2:51 1:514 2:311 3:13 3:20";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t enabled[8][1024];
static uint64_t callbacks, unrequested, enters, exits, failures, unbalanced, unpaired, nodes_created, nodes_cloned;
static uint64_t kernels, copies, memsets, syncs, zero_time, unfinished, kernel_ns, disorder, graph_kernels, backwards;
static uint64_t buffers, dropped, launched, copied_bytes;
static uint32_t version, subscribed, second, clock_result, register_result;
static uint32_t lowest = UINT32_MAX, highest;
static char by_frame_pointer[512], by_tables[512];
static uint64_t return_probes;
static __thread int depth;
static __thread uint32_t outer_correlation;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Adds the file of an address to the list, unless it is the last one there. */
static void add_module(char *list, size_t size, void *address) {
    Dl_info info;
    if (!dladdr(address, &info)) return;
    const char *name = strrchr(info.dli_fname, '/');
    name = name ? name + 1 : info.dli_fname;
    size_t length = strlen(list), end = strlen(name);
    if (length >= end && !strcmp(list + length - end, name)) return;
    snprintf(list + length, size - length, "%s%s", length ? ">" : "", name);
}

/* Whether an address is in the page through which functions with a return probe return. */
static int in_probe_page(void *address) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        if (!strstr(line, "[uprobes]") || sscanf(line, "%lx-%lx", &start, &end) != 2) continue;
        found |= start <= (uintptr_t)address && (uintptr_t)address < end;
    }
    if (maps) fclose(maps);
    return found;
}

/* Records the modules on the stack, innermost first, walked in both ways, and counts the return addresses of return probes. */
__attribute__((noinline)) static void walk(void) {
    void **frame = __builtin_frame_address(0);
    for (int i = 0; i < 64 && frame; i++) {
        void **next = frame[0];
        return_probes += in_probe_page(frame[1]);
        add_module(by_frame_pointer, sizeof by_frame_pointer, frame[1]);
        if (next <= frame || (char *)next - (char *)frame > 1 << 20) break;
        frame = next;
    }
    void *addresses[64];
    int count = backtrace(addresses, 64);
    for (int i = 0; i < count; i++) add_module(by_tables, sizeof by_tables, addresses[i]);
}

static void on_callback(void *data, uint32_t domain, uint32_t id, const void *details) {
    (void)data;
    __atomic_fetch_add(&callbacks, 1, __ATOMIC_RELAXED);
    if (domain >= 8 || id >= 1024 || !enabled[domain][id]) {
        __atomic_fetch_add(&unrequested, 1, __ATOMIC_RELAXED);
        return;
    }
    if (domain == 3) {
        __atomic_fetch_add(id == 13 ? &nodes_created : &nodes_cloned, 1, __ATOMIC_RELAXED);
        return;
    }
    const struct {
        uint32_t site;
        const char *function;
        const void *params;
        const uint32_t *result;
        const char *symbol;
        void *context;
        uint32_t context_id;
        uint64_t *mine;
        uint32_t correlation;
    } *call = details;
    if (call->site == 0) {
        __atomic_fetch_add(&enters, 1, __ATOMIC_RELAXED);
        *call->mine = call->correlation ^ 0x5555;
        /* A driver call inside a runtime call has the same id. */
        if (depth == 0) outer_correlation = call->correlation;
        else if (outer_correlation != call->correlation) __atomic_fetch_add(&unpaired, 1, __ATOMIC_RELAXED);
        if (depth == 1 && domain == 1 && !by_tables[0]) {
            pthread_mutex_lock(&lock);
            if (!by_tables[0]) walk();
            pthread_mutex_unlock(&lock);
        }
        depth++;
    } else {
        depth--;
        __atomic_fetch_add(&exits, 1, __ATOMIC_RELAXED);
        if (*call->mine != (call->correlation ^ 0x5555)) __atomic_fetch_add(&unbalanced, 1, __ATOMIC_RELAXED);
        if (depth == 0) __atomic_fetch_add(*call->result ? &failures : &launched, 1, __ATOMIC_RELAXED);
    }
}

static void on_requested(uint8_t **buffer, size_t *size, size_t *most) {
    *buffer = malloc(BUFFER);
    *size = BUFFER;
    *most = 0;
}

static uint64_t u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void count(const uint8_t *record) {
    static uint64_t last_end;
    uint64_t start = u64(record + 16), end = u64(record + 24);
    uint32_t correlation = 0;
    switch (u32(record)) {
    case KERNEL:
        kernels++;
        correlation = u32(record + 92);
        graph_kernels += u64(record + 144) != 0;
        if (start && end) {
            kernel_ns += end - start;
            disorder += end < last_end;
            last_end = end;
        }
        break;
    case MEMCPY:
        copies++;
        copied_bytes += u64(record + 8);
        correlation = u32(record + 44);
        break;
    case MEMCPY2:
        copies++;
        correlation = u32(record + 60);
        break;
    case MEMSET:
        memsets++;
        correlation = u32(record + 44);
        break;
    case SYNC:
        syncs++;
        return;
    }
    if (!start && !end) zero_time++;
    else if (!end) unfinished++;
    else if (end < start) backwards++;
    if (correlation < lowest) lowest = correlation;
    if (correlation > highest) highest = correlation;
}

static void on_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)size;
    uint8_t *record = NULL;
    size_t lost = 0;
    pthread_mutex_lock(&lock);
    buffers++;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == 0) count(record);
    pthread_mutex_unlock(&lock);
    cuptiActivityGetNumDroppedRecords(context, stream, &lost);
    __atomic_fetch_add(&dropped, lost, __ATOMIC_RELAXED);
    free(buffer);
}

/* Returns the length of a record: fills a buffer with its kind and measures the distance between two records. */
static size_t stride(uint32_t kind) {
    static uint64_t buffer[256];
    for (size_t i = 0; i < 256; i++) buffer[i] = kind;
    uint8_t *first = NULL, *second_record;
    if (cuptiActivityGetNextRecord((uint8_t *)buffer, sizeof buffer, &first)) return 0;
    second_record = first;
    if (cuptiActivityGetNextRecord((uint8_t *)buffer, sizeof buffer, &second_record)) return 0;
    return (size_t)(second_record - first);
}

static void finish(void) {
    size_t lost = 0;
    const char *how = getenv("CLIENT_FLUSH");
    if (!how) cuptiActivityFlushAll(1);
    else if (!strcmp(how, "finished")) cuptiActivityFlushAll(0);
    cuptiActivityGetNumDroppedRecords(NULL, 0, &lost);
    dropped += lost;
    const char *path = getenv("CLIENT_OUT");
    FILE *out = path ? fopen(path, "w") : NULL;
    if (!out) return;
#define PUT(name) fprintf(out, #name " %llu\n", (unsigned long long)(name))
    PUT(version), PUT(subscribed), PUT(second), PUT(clock_result), PUT(register_result);
    PUT(callbacks), PUT(unrequested), PUT(enters), PUT(exits), PUT(failures), PUT(unbalanced), PUT(unpaired);
    PUT(nodes_created), PUT(nodes_cloned), PUT(launched), PUT(buffers), PUT(dropped), PUT(copied_bytes);
    PUT(kernels), PUT(copies), PUT(memsets), PUT(syncs), PUT(zero_time), PUT(unfinished), PUT(kernel_ns);
    PUT(disorder), PUT(graph_kernels), PUT(backwards), PUT(lowest), PUT(highest);
    fprintf(out, "stride_kernel %zu\nstride_memcpy %zu\nstride_peer %zu\nstride_memset %zu\nstride_sync %zu\n",
            stride(KERNEL), stride(MEMCPY), stride(MEMCPY2), stride(MEMSET), stride(SYNC));
    fprintf(out, "by_frame_pointer %s\nby_tables %s\nreturn_probes %lu\n", by_frame_pointer, by_tables, return_probes);
    fclose(out);
}

int InitializeInjection(void) {
    void *handle = NULL, *other = NULL;
    atexit(finish);
    cuptiGetVersion(&version);
    subscribed = cuptiSubscribe(&handle, on_callback, NULL);
    second = cuptiSubscribe(&other, on_callback, NULL);
    clock_result = cuptiActivityRegisterTimestampCallback(now);
    register_result = cuptiActivityRegisterCallbacks(on_requested, on_completed);
    const char *list = getenv("CLIENT_CALLBACKS");
    list = list ? list : all;
    for (unsigned domain, id; sscanf(list, " %u:%u", &domain, &id) == 2;) {
        if (cuptiEnableCallback(1, handle, domain, id) == 0) enabled[domain][id] = 1;
        list += strspn(list, " ");
        list += strcspn(list, " ");
    }
    if (!getenv("CLIENT_NO_ACTIVITY")) {
        const uint32_t kinds[] = {KERNEL, MEMCPY, MEMCPY2, MEMSET, SYNC};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) cuptiActivityEnable(kinds[i]);
    }
    return 1;
}
