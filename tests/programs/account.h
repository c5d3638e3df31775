/* A program's own account of the calls it makes: a line of JSON for each, with the field names of `warpscope trace`. */
#ifndef TEST_ACCOUNT_H
#define TEST_ACCOUNT_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int account_file = -1;

/* Opens the account. Several processes may write to one file. */
static inline void account_to(const char *path) {
    account_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (account_file < 0) {
        perror(path);
        exit(2);
    }
}

static inline const char *result_name(int driver, int code) {
    switch (code) {
    case 0: return driver ? "CUDA_SUCCESS" : "cudaSuccess";
    case 1: return driver ? "CUDA_ERROR_INVALID_VALUE" : "cudaErrorInvalidValue";
    case 2: return driver ? "CUDA_ERROR_OUT_OF_MEMORY" : "cudaErrorMemoryAllocation";
    case 3: return driver ? "CUDA_ERROR_NOT_INITIALIZED" : "cudaErrorInitializationError";
    case 98: return "cudaErrorInvalidDeviceFunction";
    case 101: return driver ? "CUDA_ERROR_INVALID_DEVICE" : "cudaErrorInvalidDevice";
    case 400: return driver ? "CUDA_ERROR_INVALID_HANDLE" : "cudaErrorInvalidResourceHandle";
    case 600: return driver ? "CUDA_ERROR_NOT_READY" : "cudaErrorNotReady";
    }
    fprintf(stderr, "account: unknown result: %d\n", code);
    exit(2);
}

/* Writes one line with one write. `result` is JSON, `format` the text between the braces of the arguments. */
__attribute__((format(printf, 3, 4))) static inline void account(const char *name, const char *result, const char *format,
                                                                 ...) {
    char args[1024], line[1400];
    va_list list;
    va_start(list, format);
    vsnprintf(args, sizeof args, format, list);
    va_end(list);
    int length = snprintf(line, sizeof line, "{\"pid\":%d,\"tid\":%ld,\"name\":\"%s\",\"args\":{%s},\"ret\":%s}\n", getpid(),
                          syscall(SYS_gettid), name, args, result);
    if (account_file >= 0 && write(account_file, line, length) != length) exit(2);
}

/* The same for a call that returns a status. */
#define CALLED(function, call, ...)                                                                                    \
    ({                                                                                                                 \
        int code_ = (call);                                                                                            \
        char result_[64];                                                                                              \
        snprintf(result_, sizeof result_, "\"%s\"", result_name(strncmp(#function, "cuda", 4) != 0, code_));           \
        account(#function, result_, __VA_ARGS__);                                                                      \
        code_;                                                                                                         \
    })

/* Formats for addresses and handles, and for streams. */
#define ADDRESS(name) "\"" name "\":\"0x%lx\""
#define STREAM(name) "\"" name "\":\"%s\""
static inline const char *stream_text(const void *stream) {
    static __thread char texts[4][24];
    static __thread unsigned next;
    char *text = texts[next++ % 4];
    sprintf(text, stream ? "0x%lx" : "%lx", (unsigned long)stream);
    return text;
}

#endif
