/* A CUDA program and its children, which list their open files.
 *
 *   spawn exec   launches a kernel, then runs `ls /proc/self/fd` in a child
 *   spawn fork   launches a kernel, then lists its own /proc/self/fd from a child that did not exec
 *   spawn late DELAY_FILE   prints its pid, and once DELAY_FILE exists (within a minute) launches 100 kernels; exits 5 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

static char key;

static void launch(int count) {
    void **handle = __cudaRegisterFatBinary(NULL);
    __cudaRegisterFunction(handle, &key, "spawn", "spawn", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
    for (int i = 0; i < count; i++)
        if (cudaLaunchKernel(&key, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) exit(1);
    if (cudaDeviceSynchronize()) exit(1);
}

static int compare(const struct dirent **a, const struct dirent **b) {
    return atoi((*a)->d_name) - atoi((*b)->d_name);
}

static void list_descriptors(void) {
    struct dirent **entries;
    int count = scandir("/proc/self/fd", &entries, NULL, compare);
    for (int i = 0; i < count; i++)
        if (entries[i]->d_name[0] != '.') puts(entries[i]->d_name);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (!strcmp(argv[1], "late") && argc > 2) {
        printf("%d\n", getpid());
        fflush(stdout);
        for (int left = 60000; access(argv[2], F_OK); left--) {
            if (!left) return 1;
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        launch(100);
        return 5;
    }
    launch(1);
    pid_t child = fork();
    if (child == 0 && !strcmp(argv[1], "exec")) execlp("ls", "ls", "/proc/self/fd", NULL);
    if (child == 0) {
        list_descriptors();
        _exit(0);
    }
    int status;
    return waitpid(child, &status, 0) != child || status != 0;
}
