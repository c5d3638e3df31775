/* A distributed program whose communicators say what is called on them, as NCCL does by NVTX: each rank is a forked process with
 * its own GPU. Every kernel is named after the communicator and the number of its operation.
 *
 *   nccl RANKS ROUNDS [mismatch | missing | silent]
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
 *   silent     without NVTX */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"
#include "nccl.h"

enum { MOST = 16, KERNELS = 4096 };
static char keys[KERNELS];
static void **fat_binary;
static int known;

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
