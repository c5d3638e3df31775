/* Launches at full speed, in a process with a large file mapped as code.
 *
 *   busy FILE   maps the whole file. Prints `ready`, and launches until its standard input ends. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda.h"

int main(int arguments, char **argument) {
    struct pollfd input = {0, POLLIN, 0};
    struct stat info;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    int file = arguments > 1 ? open(argument[1], O_RDONLY) : -1;
    if (fstat(file, &info) || mmap(NULL, info.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) return 1;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, NULL) || cuModuleGetFunction(&function, module, "busy")) return 1;
    puts("ready");
    fflush(stdout);
    while (poll(&input, 1, 0) == 0)
        for (int i = 0; i < 10; i++)
            if (cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) return 1;
    return 0;
}
