/* A distributed program: each rank is a forked process with its own GPU.
 *
 *   ranks RANKS ROUNDS [uneven | keep]
 *
 * In every round the ranks run a kernel named like NCCL's one after another: rank 0 first, the last rank last. Each starts
 * its kernel only after that of the rank before it has ended, so the last rank always starts last. With `uneven`, rank 0
 * runs one more. Rank R also runs R + 1 kernels `compute` per round, and starts a shell. With `keep`, the program does not
 * set its ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

enum { MOST = 16 };

static char compute, collective;
static char compute_name[] = "compute";
static char collective_name[] = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
static int tokens[MOST][2];

static void launch(void *kernel) {
    if (cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) _exit(3);
}

/* Passes the token to a rank, and waits for one's own. */
static void pass(int rank) {
    if (write(tokens[rank][1], "x", 1) != 1) _exit(4);
}

static void await_turn(int rank) {
    char token;
    if (read(tokens[rank][0], &token, 1) != 1) _exit(4);
}

static void number(const char *variable, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(variable, text, 1);
}

static void run(int rank, int ranks, int rounds, const char *form) {
    if (strcmp(form, "keep")) {
        number("RANK", rank + 4);
        number("LOCAL_RANK", rank);
    }
    number("CUDA_VISIBLE_DEVICES", rank);
    void **module = __cudaRegisterFatBinary(NULL);
    __cudaRegisterFunction(module, &compute, compute_name, compute_name, -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(module, &collective, collective_name, collective_name, -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(module);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i <= rank; i++) launch(&compute);
        if (cudaDeviceSynchronize()) _exit(3);
        await_turn(rank);
        launch(&collective);
        /* The kernel has started: it has even ended. */
        if (cudaDeviceSynchronize()) _exit(3);
        pass((rank + 1) % ranks);
    }
    if (!strcmp(form, "uneven") && rank == 0) launch(&collective);
    if (cudaDeviceSynchronize()) _exit(3);
    if (system("true")) _exit(5);
    exit(0);
}

int main(int argc, char **argv) {
    int ranks = argc > 2 ? atoi(argv[1]) : 0, failed = 0;
    if (ranks < 1 || ranks > MOST) return 2;
    for (int rank = 0; rank < ranks; rank++)
        if (pipe(tokens[rank])) return 2;
    for (int rank = 0; rank < ranks; rank++)
        if (fork() == 0) run(rank, ranks, atoi(argv[2]), argc > 3 ? argv[3] : "");
    pass(0);
    for (int rank = 0, status; rank < ranks; rank++) {
        wait(&status);
        failed |= status;
    }
    return failed != 0;
}
