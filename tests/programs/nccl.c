/* A distributed program on the simulated NCCL: each rank is a process with its own GPU.
 *
 *   nccl RANKS ROUNDS [missing | silent | busy | asleep | absent | stuck]
 *
 * One communicator has all ranks, others, split from it, have two each. In every round, each rank calls
 *
 *   as many reductions of its pair as the pair's number and one more
 *   a reduction of nothing, which needs no kernel
 *   a group of a reduction and a gathering of all, which one kernel executes
 *   a group of a send to the next rank and a receive from the previous one
 *   a broadcast from rank 1
 *
 * and at the end a reduction to the second one of its pair, and one that is scattered.
 *
 *   missing    the last rank does not call the last broadcast; the others abort it
 *   silent     without NVTX
 *   busy       before each broadcast, rank 1 computes for 20 ms in load_batch
 *   asleep     it sleeps there
 *   absent     rank 1 never leaves load_batch; each rank prints a line where it stays
 *   stuck      each rank prints a line before it waits for the last time */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"
#include "nccl.h"

enum { MOST = 16 };

static void check(int failed) {
    if (failed) _exit(3);
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

__attribute__((noinline)) static void load_batch(const char *form) {
    for (long end = cpu_time() + 20000000; !strcmp(form, "busy") && cpu_time() < end;);
    if (!strcmp(form, "asleep")) usleep(20000);
    if (!strcmp(form, "absent")) puts("ready"), fflush(stdout);
    while (!strcmp(form, "absent")) pause();
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static int finish(const char *form) {
    if (!strcmp(form, "absent") || !strcmp(form, "stuck")) puts("ready"), fflush(stdout);
    int failed = cudaDeviceSynchronize();
    __asm__ volatile("" ::: "memory");
    return failed;
}

static void run(int rank, int ranks, int rounds, const char *form, ncclUniqueId id) {
    if (!strcmp(form, "silent")) unsetenv("NVTX_INJECTION64_PATH");
    ncclComm_t all, pair;
    check(ncclCommInitRank(&all, ranks, id, rank));
    check(ncclCommSplit(all, rank / 2, rank, &pair, NULL));
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i <= rank / 2; i++) check(ncclAllReduce(NULL, NULL, 4096, ncclInt8, ncclSum, pair, NULL));
        check(ncclAllReduce(NULL, NULL, 0, ncclInt8, ncclSum, all, NULL));
        check(ncclGroupStart());
        check(ncclAllReduce(NULL, NULL, 1 << 20, ncclInt8, ncclSum, all, NULL));
        check(ncclAllGather(NULL, NULL, 1 << 10, ncclInt8, all, NULL));
        check(ncclGroupEnd());
        check(ncclGroupStart());
        check(ncclSend(NULL, 1 << 16, ncclInt8, (rank + 1) % ranks, all, NULL));
        check(ncclRecv(NULL, 1 << 16, ncclInt8, (rank + ranks - 1) % ranks, all, NULL));
        check(ncclGroupEnd());
        if (rank == 1) load_batch(form);
        if (!strcmp(form, "missing") && round == rounds - 1 && rank == ranks - 1) {
            check(cudaDeviceSynchronize());
            check(ncclCommAbort(all));
        } else {
            check(ncclBroadcast(NULL, NULL, 1 << 12, ncclInt8, 1, all, NULL));
        }
    }
    check(ncclReduce(NULL, NULL, 512, ncclInt8, ncclSum, 1, pair, NULL));
    check(ncclReduceScatter(NULL, NULL, 256, ncclInt8, ncclSum, pair, NULL));
    int failed = finish(form) != 0;
    check(ncclCommDestroy(pair));
    exit(failed);
}

/* The communicator's id, as text. */
static void write_id(char *text, ncclUniqueId id) {
    for (size_t i = 0; i < sizeof id.bytes; i++) sprintf(text + 2 * i, "%02x", (unsigned char)id.bytes[i]);
}

static ncclUniqueId read_id(const char *text) {
    ncclUniqueId id;
    for (size_t i = 0; i < sizeof id.bytes; i++) sscanf(text + 2 * i, "%2hhx", (unsigned char *)&id.bytes[i]);
    return id;
}

int main(int argc, char **argv) {
    int ranks = argc > 2 ? atoi(argv[1]) : 0, failed = 0;
    char text[2 * sizeof(ncclUniqueId) + 1], *form = argc > 3 ? argv[3] : "";
    ncclUniqueId id;
    if (argc > 4) run(atoi(getenv("RANK")), ranks, atoi(argv[2]), form, read_id(argv[4]));
    if (ranks < 2 || ranks > MOST || ncclGetUniqueId(&id)) return 2;
    write_id(text, id);
    number("WORLD_SIZE", ranks);
    number("LOCAL_WORLD_SIZE", ranks);
    for (int rank = 0; rank < ranks; rank++) {
        if (fork()) continue;
        number("RANK", rank);
        number("LOCAL_RANK", rank);
        number("CUDA_VISIBLE_DEVICES", rank);
        execl("/proc/self/exe", argv[0], argv[1], argv[2], form, text, NULL);
        _exit(4);
    }
    for (int rank = 0, status; rank < ranks; rank++) {
        wait(&status);
        failed |= status;
    }
    return failed != 0;
}
