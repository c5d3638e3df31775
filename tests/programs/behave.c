/* Behaviours of a program, one for each MODE:
 *
 *   none         exits 0 at once, without CUDA
 *   kill K       launches K kernels, then kills itself with SIGKILL
 *   fork K       launches K, forks a child that tries CUDA (error 3 expected) and exits 9 without exec; then K more; exits 0
 *   status       launches one kernel, exits 42
 *   starve N     as loop 0.5, with only N free descriptors
 *   forgetful X  as loop 0.5, after removing the variable X from its environment
 *   init         initialises CUDA, launches nothing, exits 42
 *   output       launches one kernel, prints 1000 numbered lines to stdout and 1000 to stderr
 *   empty K      K copies and memsets of 0 bytes through the runtime and the driver each, and one copy of 8 bytes
 *   quick K      launches K kernels, then _exit(0) without waiting for them
 *   interrupt    launches kernels until SIGINT or SIGTERM, then cleans up and exits 7; prints `ready` first
 *   loop SECS    launches kernels for this many seconds; prints `ready` first
 * The kernel is called `behave`, or as in BEHAVE_KERNEL. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

static char key;
static volatile sig_atomic_t interrupted;

static void start(void) {
    void **handle = __cudaRegisterFatBinary(NULL);
    char *name = getenv("BEHAVE_KERNEL") ? getenv("BEHAVE_KERNEL") : "behave";
    __cudaRegisterFunction(handle, &key, name, name, -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
}

__attribute__((noinline)) static void launch(long count) {
    for (long i = 0; i < count; i++) {
        int error = cudaLaunchKernel(&key, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL);
        if (error) {
            fprintf(stderr, "behave: cudaLaunchKernel: %s\n", cudaGetErrorName(error));
            exit(1);
        }
    }
}

static void synchronize(void) {
    if (cudaDeviceSynchronize()) exit(1);
}

static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

static void ready(void) {
    puts("ready");
    fflush(stdout);
}

static void pause_briefly(void) {
    struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

static int fork_without_exec(long count) {
    launch(count);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) exit(cudaLaunchKernel(&key, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL) == 3 ? 9 : 1);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 9) return 1;
    launch(count);
    synchronize();
    return 0;
}

static int print_patterns(void) {
    launch(1);
    synchronize();
    for (int i = 0; i < 1000; i++) {
        printf("out %04d\n", i);
        fprintf(stderr, "err %04d\n", i);
    }
    return 0;
}

static int copy_nothing(long count) {
    void *memory;
    char bytes[8] = {0};
    if (cudaMalloc(&memory, sizeof(bytes))) return 1;
    for (long i = 0; i < count; i++)
        if (cudaMemcpyAsync(memory, bytes, 0, cudaMemcpyHostToDevice, NULL) || cudaMemsetAsync(memory, 0, 0, NULL) ||
            cuMemcpyHtoDAsync_v2((CUdeviceptr)memory, bytes, 0, NULL) || cuMemsetD8Async((CUdeviceptr)memory, 0, 0, NULL))
            return 1;
    return cudaMemcpy(memory, bytes, sizeof(bytes), cudaMemcpyHostToDevice);
}

static int until_interrupted(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    launch(1);
    ready();
    while (!interrupted) {
        launch(10);
        pause_briefly();
    }
    synchronize();
    puts("cleaned up");
    return 7;
}

static int loop(double duration) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    launch(1);
    ready();
    do {
        launch(10);
        pause_briefly();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9 < duration);
    synchronize();
    return 0;
}

static void starve(long left) {
    int last, descriptors[1024];
    long count = 0;
    while ((last = dup(0)) >= 0 && count < 1024) descriptors[count++] = last;
    while (left-- > 0 && count > 0) close(descriptors[--count]);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    const char *argument = argc > 2 ? argv[2] : "1";
    if (!strcmp(mode, "none")) return 0;
    if (!strcmp(mode, "starve")) starve(atol(argument));
    if (!strcmp(mode, "forgetful")) unsetenv(argument);
    start();
    if (!strcmp(mode, "init")) {
        synchronize();
        return 42;
    }
    if (!strcmp(mode, "kill")) {
        launch(atol(argument));
        raise(SIGKILL);
    } else if (!strcmp(mode, "fork")) {
        return fork_without_exec(atol(argument));
    } else if (!strcmp(mode, "starve") || !strcmp(mode, "forgetful")) {
        return loop(0.5);
    } else if (!strcmp(mode, "status")) {
        launch(1);
        synchronize();
        return 42;
    } else if (!strcmp(mode, "output")) {
        return print_patterns();
    } else if (!strcmp(mode, "empty")) {
        return copy_nothing(atol(argument));
    } else if (!strcmp(mode, "quick")) {
        launch(atol(argument));
        _exit(0);
    } else if (!strcmp(mode, "interrupt")) {
        return until_interrupted();
    } else if (!strcmp(mode, "loop")) {
        return loop(atof(argument));
    }
    fprintf(stderr, "usage: behave none|kill K|fork K|status|starve N|forgetful X|init|output|empty K|quick K|interrupt|loop SECS\n");
    return 2;
}
