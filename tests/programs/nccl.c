/* A distributed program whose communicators say what is called on them, as NCCL does by NVTX: each rank is a forked process with
 * its own GPU. Every kernel is named after the communicator and the number of its operation.
 *
 *   nccl RANKS ROUNDS [mismatch | missing | silent | busy | asleep]
 *
 * Communicator 1000 has all ranks. Communicators 2000, 2001, ... have two each, and are split from it: NCCL describes them only
 * when they are destroyed. In every round, each rank calls
 *
 *   as many reductions of its pair as the pair's number and one more
 *   a reduction of nothing, which needs no kernel
 *   a group of a reduction and a gathering of all, which one kernel executes
 *   a group of a send to the next rank and a receive from the previous one
 *   a broadcast from rank 1
 *
 *   mismatch   in round 3, rank 1 gathers instead of reducing
 *   missing    the last rank does not call the last broadcast
 *   silent     without NVTX
 *   busy       before each broadcast, rank 1 computes for 20 ms in load_batch
 *   asleep     it sleeps there */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"
#include "nvtx.h"

enum { MOST = 16, KERNELS = 4096 };
enum { INIT = 11, DESTROY = 2, ALL_GATHER = 4, ALL_REDUCE = 5, BROADCAST = 6, SEND = 9, RECEIVE = 10 };

struct payload {
    uint64_t schema;
    size_t size;
    const void *bytes;
};

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, count;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

/* What NVTX passes at the first use of an extension. */
static function extension[63];
static struct { size_t id, count; function *functions; } segment = {0, 63, extension};
static struct { uint16_t version, size, id, compatible; size_t segments; void *segment, *get, *more; } module = {3, sizeof module, 2, 259, 1, &segment, NULL, NULL};

static char keys[KERNELS];
static void **fat_binary;
static int known;
static void *domain, *elsewhere;

static void begin_nvtx(void) {
    initialise();
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*begin)(void *) = library ? (int (*)(void *))dlsym(library, "InitializeInjectionNvtxExtension") : NULL;
    if (begin && begin(&module) != 1) exit(4);
    elsewhere = core2[12] ? ((void *(*)(const char *))core2[12])("elsewhere") : NULL;
    domain = core2[12] ? ((void *(*)(const char *))core2[12])("NCCL") : NULL;
}

/* A range of a domain with a payload at its beginning, or at its end. */
static void range(void *domain, int schema, const void *bytes, size_t size, int at_end) {
    struct payload payload = {(1 << 24) + schema, size, bytes};
    struct attributes with = {.version = 3, .size = sizeof with, .message_type = 3};
    if (!at_end) {
        with.payload_type = 0xDFBD0009u;
        with.count = 1;
        with.payload = (uint64_t)&payload;
    }
    if (core2[4]) ((int (*)(void *, const struct attributes *))core2[4])(domain, &with);
    if (at_end && extension[4]) ((int (*)(void *, const struct payload *, size_t))extension[4])(domain, &payload, 1);
    if (!at_end && core2[5]) ((int (*)(void *))core2[5])(domain);
}

static void describe(int schema, uint64_t communicator, int size, int rank) {
    struct { uint64_t communicator; int size, rank, device; } fields = {communicator, size, rank, 0};
    range(domain, schema, &fields, sizeof fields, schema == INIT);
}

static void call(int schema, uint64_t communicator, size_t bytes, int more) {
    struct { uint64_t communicator; size_t bytes; int more; } fields = {communicator, bytes, more};
    range(domain, schema, &fields, schema == ALL_GATHER ? 16 : sizeof fields, 0);
    /* The same means something else there. */
    range(elsewhere, schema, &fields, sizeof fields, 0);
}

static void launch(const char *what, uint64_t communicator, int number) {
    char name[128];
    if (known == KERNELS) _exit(3);
    snprintf(name, sizeof name, "ncclDevKernel_%s_%d_%d()", what, (int)communicator, number);
    if (!fat_binary) fat_binary = __cudaRegisterFatBinary(NULL);
    __cudaRegisterFunction(fat_binary, &keys[known], strdup(name), strdup(name), -1, NULL, NULL, NULL, NULL, NULL);
    if (cudaLaunchKernel(&keys[known++], (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) _exit(3);
}

static void number(const char *variable, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(variable, text, 1);
}

static long cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) static void load_batch(int is_busy) {
    for (long end = cpu_time() + 20000000; is_busy && cpu_time() < end;);
    if (!is_busy) usleep(20000);
    __asm__ volatile("" ::: "memory");
}

static void run(int rank, int ranks, int rounds, const char *form) {
    number("RANK", rank);
    number("LOCAL_RANK", rank);
    number("CUDA_VISIBLE_DEVICES", rank);
    cudaDeviceSynchronize();
    if (strcmp(form, "silent")) begin_nvtx();
    uint64_t all = 1000, pair = 2000 + rank / 2;
    describe(INIT, all, ranks, rank);
    int of_all = 0, of_pair = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i <= rank / 2; i++) {
            call(ALL_REDUCE, pair, 4096, 0);
            launch("AllReduce", pair, of_pair++);
        }
        call(ALL_REDUCE, all, 0, 0);
        of_all++;
        call(!strcmp(form, "mismatch") && round == 3 && rank == 1 ? ALL_GATHER : ALL_REDUCE, all, 1 << 20, 0);
        call(ALL_GATHER, all, 1 << 10, 0);
        launch("Generic", all, of_all);
        of_all += 2;
        call(SEND, all, 1 << 16, (rank + 1) % ranks);
        call(RECEIVE, all, 1 << 16, (rank + ranks - 1) % ranks);
        launch("SendRecv", all, round);
        if (!strcmp(form, "missing") && rank == ranks - 1 && round == rounds - 1) break;
        if (rank == 1 && !strcmp(form, "busy")) load_batch(1);
        if (rank == 1 && !strcmp(form, "asleep")) load_batch(0);
        call(BROADCAST, all, 1 << 12, 1);
        launch("Broadcast", all, of_all++);
    }
    int failed = cudaDeviceSynchronize() != 0;
    describe(DESTROY, pair, 2, rank % 2);
    exit(failed);
}

int main(int argc, char **argv) {
    int ranks = argc > 2 ? atoi(argv[1]) : 0, failed = 0;
    if (ranks < 2 || ranks > MOST) return 2;
    for (int rank = 0; rank < ranks; rank++)
        if (fork() == 0) run(rank, ranks, atoi(argv[2]), argc > 3 ? argv[3] : "");
    for (int rank = 0, status; rank < ranks; rank++) {
        wait(&status);
        failed |= status;
    }
    return failed != 0;
}
