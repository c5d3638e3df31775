/* A program that uses CUPTI itself, as PyTorch does with Kineto: it imports libcupti's functions, stays subscribed between two
 * recordings, and sets its own clock, buffers and kinds each time. With BY_NAME it looks the functions up when it first calls
 * them, as XLA does.
 *
 * Executes commands from its input, one per line, and answers each with a line:
 *
 *   launch N      launches N kernels and waits for them      launched N
 *   start         subscribes, unless it has; records         started ERROR
 *   stop          disables its kinds and flushes             recorded N wrong M
 *   flush         flushes                                    recorded N wrong M
 *   unsubscribe   ends its subscription                      unsubscribed ERROR
 *   finalize      ends CUPTI                                 finalized ERROR
 *
 * ERROR is the first result of CUPTI other than 0. N is the number of kernels that it has recorded since `start`, M how many of
 * them have a time that is not on its clock, or come in a buffer that is not its own. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"

typedef void *Subscriber;
typedef void Callback(void *, unsigned, unsigned, const void *);
int cuptiSubscribe(Subscriber *, Callback *, void *);
int cuptiUnsubscribe(Subscriber);
int cuptiFinalize(void);
int cuptiEnableCallback(unsigned, Subscriber, unsigned, unsigned);
int cuptiActivityRegisterTimestampCallback(uint64_t (*)(void));
int cuptiActivityRegisterCallbacks(void (*)(uint8_t **, size_t *, size_t *), void (*)(void *, unsigned, uint8_t *, size_t, size_t));
int cuptiActivityEnable(unsigned);
int cuptiActivityDisable(unsigned);
int cuptiActivityFlushAll(unsigned);
int cuptiActivityGetNextRecord(uint8_t *, size_t, uint8_t **);

#ifdef BY_NAME
#include <dlfcn.h>

static void *find(const char *name) {
    static void *library;
    void *found;
    if (!library) library = dlopen(BY_NAME, RTLD_LAZY);
    if (!library || !(found = dlsym(library, name))) exit(2);
    return found;
}

#define FOUND(name) ({ static void *at; if (!at) at = find(#name); (__typeof__(&name))at; })
#define cuptiSubscribe FOUND(cuptiSubscribe)
#define cuptiUnsubscribe FOUND(cuptiUnsubscribe)
#define cuptiFinalize FOUND(cuptiFinalize)
#define cuptiEnableCallback FOUND(cuptiEnableCallback)
#define cuptiActivityRegisterTimestampCallback FOUND(cuptiActivityRegisterTimestampCallback)
#define cuptiActivityRegisterCallbacks FOUND(cuptiActivityRegisterCallbacks)
#define cuptiActivityEnable FOUND(cuptiActivityEnable)
#define cuptiActivityDisable FOUND(cuptiActivityDisable)
#define cuptiActivityFlushAll FOUND(cuptiActivityFlushAll)
#define cuptiActivityGetNextRecord FOUND(cuptiActivityGetNextRecord)
#endif

enum { SIZE = 1 << 16, MOST = 64, MEMCPY = 1, MEMSET = 2, KERNEL = 10, RESOURCE = 3, CONTEXT_DESTROYED = 2 };

static const unsigned kinds[] = {MEMCPY, MEMSET, KERNEL};
static Subscriber subscriber;
static uint8_t *buffers[MOST];
static long recorded, wrong;

/* A clock that no one else has: a day behind. */
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (time.tv_sec - 86400) * 1000000000ull + time.tv_nsec;
}

static void callback(void *data, unsigned domain, unsigned id, const void *info) {
    (void)data, (void)domain, (void)id, (void)info;
}

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
    int place = 0;
    while (place < MOST - 1 && buffers[place]) place++;
    *buffer = buffers[place] = malloc(SIZE);
    *size = SIZE;
    *most = 0;
}

static void completed(void *context, unsigned stream, uint8_t *buffer, size_t size, size_t valid) {
    uint8_t *record = NULL;
    int place = 0;
    (void)context, (void)stream, (void)size;
    while (place < MOST && buffers[place] != buffer) place++;
    if (place == MOST) {
        wrong++;
        return;
    }
    while (!cuptiActivityGetNextRecord(buffer, valid, &record)) {
        uint32_t kind;
        uint64_t start;
        memcpy(&kind, record, sizeof kind);
        memcpy(&start, record + 16, sizeof start);
        if (kind != KERNEL) continue;
        recorded++;
        wrong += start > now() || now() - start > 3600000000000ull;
    }
    free(buffer);
    buffers[place] = NULL;
}

static int start(void) {
    int error = 0;
    recorded = wrong = 0;
    if (!subscriber && (error = cuptiSubscribe(&subscriber, callback, NULL))) {
        subscriber = NULL;
        return error;
    }
    error = cuptiEnableCallback(1, subscriber, RESOURCE, CONTEXT_DESTROYED);
    if (!error) error = cuptiActivityRegisterTimestampCallback(now);
    if (!error) error = cuptiActivityRegisterCallbacks(requested, completed);
    for (int i = 0; i < 3; i++)
        if (!error) error = cuptiActivityEnable(kinds[i]);
    return error;
}

__attribute__((noinline)) static void work(CUfunction function, long count) {
    for (long i = 0; i < count; i++)
        if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) exit(1);
    if (cuCtxSynchronize()) exit(1);
}

int main(void) {
    char line[64];
    CUcontext context;
    CUmodule module;
    CUfunction function;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, "module") || cuModuleGetFunction(&function, module, "truth:main>work")) return 1;
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "launch ", 7)) {
            work(function, atol(line + 7));
            printf("launched %ld\n", atol(line + 7));
        } else if (!strcmp(line, "start\n")) {
            printf("started %d\n", start());
        } else if (!strcmp(line, "stop\n") || !strcmp(line, "flush\n")) {
            for (int i = 0; line[0] == 's' && i < 3; i++) cuptiActivityDisable(kinds[i]);
            cuptiActivityFlushAll(1);
            printf("recorded %ld wrong %ld\n", recorded, wrong);
        } else if (!strcmp(line, "unsubscribe\n")) {
            printf("unsubscribed %d\n", cuptiUnsubscribe(subscriber));
            subscriber = NULL;
        } else if (!strcmp(line, "finalize\n")) {
            printf("finalized %d\n", cuptiFinalize());
            subscriber = NULL;
        }
    }
    return 0;
}
