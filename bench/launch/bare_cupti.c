/* The baseline: a library for CUDA_INJECTION64_PATH that does the minimum of a kernel profiler. It enables CUPTI's
 * kernel activity, iterates the records and discards them. Its cost is that of CUPTI, not of warpscope.
 *
 * At exit it writes one line to the file BARE_CUPTI_REPORT, if set: "kernels N" or "error REASON".
 * WARPSCOPE_CUPTI names the libcupti to use. No CUDA headers: the few prototypes needed are below. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KIND_CONCURRENT_KERNEL = 10, DRIVER_API = 1, RUNTIME_API = 2, FLUSH_MS = 100, BUFFER_BYTES = 4 << 20 };

typedef void (*BufferRequested)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*BufferCompleted)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

static uint32_t (*register_callbacks)(BufferRequested, BufferCompleted);
static uint32_t (*get_next_record)(uint8_t *buffer, size_t valid, uint32_t **record);
static uint32_t (*enable)(uint32_t kind);
static uint32_t (*disable)(uint32_t kind);
static uint32_t (*flush_all)(uint32_t forced);
static uint32_t (*subscribe)(void **subscriber, void (*callback)(void *, uint32_t, uint32_t, const void *), void *data);
static uint32_t (*unsubscribe)(void *subscriber);
static uint32_t (*finalize)(void);
static uint32_t (*enable_callback)(uint32_t on, void *subscriber, uint32_t domain, uint32_t id);

/* Buffers are reused: the cost of new pages would be attributed to CUPTI. A free buffer begins with the address of the next one. */
static pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER;
static void *free_buffers;

static pthread_mutex_t flush_lock = PTHREAD_MUTEX_INITIALIZER;
static int ending, finalized; /* protected by flush_lock */

static atomic_ullong kernels;
static const char *failure;

static void buffer_requested(uint8_t **buffer, size_t *size, size_t *most_records)
{
    pthread_mutex_lock(&buffers_lock);
    void *taken = free_buffers;
    if (taken)
        free_buffers = *(void **)taken;
    pthread_mutex_unlock(&buffers_lock);
    if (!taken)
        taken = aligned_alloc(4096, BUFFER_BYTES);
    *buffer = taken;
    *size = taken ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    unsigned long long found = 0;
    uint32_t *record = NULL; /* every record begins with its kind */
    while (valid > 0 && get_next_record(buffer, valid, &record) == 0)
        found += *record == KIND_CONCURRENT_KERNEL;
    atomic_fetch_add(&kernels, found);
    pthread_mutex_lock(&buffers_lock);
    *(void **)buffer = free_buffers;
    free_buffers = buffer;
    pthread_mutex_unlock(&buffers_lock);
}

static void *flush_loop(void *unused)
{
    (void)unused;
    const struct timespec period = {0, FLUSH_MS * 1000000L};
    for (;;) {
        nanosleep(&period, NULL);
        pthread_mutex_lock(&flush_lock);
        int stop = ending;
        if (!stop && !finalized)
            flush_all(0);
        pthread_mutex_unlock(&flush_lock);
        if (stop)
            return NULL;
    }
}

static void report(void)
{
    const char *path = getenv("BARE_CUPTI_REPORT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    if (failure)
        fprintf(file, "error %s\n", failure);
    else
        fprintf(file, "kernels %llu\n", (unsigned long long)atomic_load(&kernels));
    fclose(file);
}

static void at_exit(void)
{
    if (!failure) {
        pthread_mutex_lock(&flush_lock);
        ending = 1;
        flush_all(1);
        pthread_mutex_unlock(&flush_lock);
    }
    report();
}

static void *open_first_match(const char *pattern)
{
    glob_t found;
    void *library = NULL;
    if (glob(pattern, 0, NULL, &found) != 0)
        return NULL;
    /* Last to first: the newest toolkit sorts last. */
    for (size_t i = found.gl_pathc; i > 0 && !library; i--)
        library = dlopen(found.gl_pathv[i - 1], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

static void *open_cupti(void)
{
    const char *given = getenv("WARPSCOPE_CUPTI");
    if (given && *given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    void *library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen("libcupti.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = open_first_match("/usr/local/cuda*/targets/x86_64-linux/lib/libcupti.so.1[0-9]");
    if (!library)
        library = open_first_match("/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.1[0-9]");
    return library;
}

/* Returns the reason for the failure, or NULL. */
static const char *start(void)
{
    void *cupti = open_cupti();
    if (!cupti)
        return "no libcupti found; name one with WARPSCOPE_CUPTI";
    register_callbacks = (uint32_t(*)(BufferRequested, BufferCompleted))dlsym(cupti, "cuptiActivityRegisterCallbacks");
    get_next_record = (uint32_t(*)(uint8_t *, size_t, uint32_t **))dlsym(cupti, "cuptiActivityGetNextRecord");
    enable = (uint32_t(*)(uint32_t))dlsym(cupti, "cuptiActivityEnable");
    flush_all = (uint32_t(*)(uint32_t))dlsym(cupti, "cuptiActivityFlushAll");
    disable = (uint32_t(*)(uint32_t))dlsym(cupti, "cuptiActivityDisable");
    subscribe = (uint32_t(*)(void **, void (*)(void *, uint32_t, uint32_t, const void *), void *))dlsym(cupti, "cuptiSubscribe");
    unsubscribe = (uint32_t(*)(void *))dlsym(cupti, "cuptiUnsubscribe");
    finalize = (uint32_t(*)(void))dlsym(cupti, "cuptiFinalize");
    enable_callback = (uint32_t(*)(uint32_t, void *, uint32_t, uint32_t))dlsym(cupti, "cuptiEnableCallback");
    if (!register_callbacks || !get_next_record || !enable || !disable || !flush_all)
        return "this libcupti lacks a function";
    if (register_callbacks(buffer_requested, buffer_completed) != 0)
        return "cuptiActivityRegisterCallbacks failed";
    if (enable(KIND_CONCURRENT_KERNEL) != 0)
        return "cuptiActivityEnable failed";
    pthread_t thread;
    if (pthread_create(&thread, NULL, flush_loop, NULL) != 0)
        return "no thread for the flushes";
    pthread_detach(thread);
    return NULL;
}

/* Called by the CUDA driver from cuInit; 1 is success. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    static atomic_flag started = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&started))
        return 1;
    failure = start();
    atexit(at_exit);
    return 1;
}

/* For a program that controls the client itself, while no thread launches. */
__attribute__((visibility("default"))) void bare_cupti_enable(void)
{
    if (!enable) {
        InitializeInjection();
    } else if (!failure) {
        /* Finalizing has forgotten them. */
        register_callbacks(buffer_requested, buffer_completed);
        enable(KIND_CONCURRENT_KERNEL);
        pthread_mutex_lock(&flush_lock);
        finalized = 0;
        pthread_mutex_unlock(&flush_lock);
    }
}

__attribute__((visibility("default"))) void bare_cupti_disable(void)
{
    if (enable && !failure) {
        flush_all(0);
        disable(KIND_CONCURRENT_KERNEL);
    }
}

static void *subscriber;

static void on_launch(void *data, uint32_t domain, uint32_t id, const void *info)
{
    (void)data, (void)domain, (void)id, (void)info;
}

/* A callback at the entry and the exit of each launch, which does nothing: what a client needs to know the launch of a kernel. */
__attribute__((visibility("default"))) void bare_cupti_subscribe(void)
{
    /* cuLaunchKernel and cuLaunchKernelEx, each also for the default stream of a thread; cudaLaunchKernel likewise. */
    static const uint32_t driver[] = {307, 442, 652, 653}, runtime[] = {211, 214};
    if (!enable) {
        bare_cupti_enable();
        bare_cupti_disable();
    }
    if (failure || !subscribe || !enable_callback || subscribe(&subscriber, on_launch, NULL) != 0)
        return;
    for (size_t i = 0; i < sizeof(driver) / sizeof(*driver); i++)
        enable_callback(1, subscriber, DRIVER_API, driver[i]);
    for (size_t i = 0; i < sizeof(runtime) / sizeof(*runtime); i++)
        enable_callback(1, subscriber, RUNTIME_API, runtime[i]);
}

static void leave(void)
{
    if (subscriber && unsubscribe)
        unsubscribe(subscriber);
    subscriber = NULL;
}

__attribute__((visibility("default"))) void bare_cupti_enable_callbacks(void)
{
    bare_cupti_enable();
    bare_cupti_subscribe();
}

__attribute__((visibility("default"))) void bare_cupti_disable_callbacks(void)
{
    leave();
    bare_cupti_disable();
}

/* Removes CUPTI from the process. Returns 0 if that worked; the client can be enabled again. */
__attribute__((visibility("default"))) uint32_t bare_cupti_finalize(void)
{
    if (!enable || failure)
        return 0;
    leave();
    pthread_mutex_lock(&flush_lock);
    flush_all(1);
    uint32_t result = finalize ? finalize() : 1;
    finalized = 1;
    pthread_mutex_unlock(&flush_lock);
    return result;
}
