/* System calls on files in the current directory that are named like NVIDIA's devices, and the program's own account.
 *
 *   devices FILE THREADS   creates the files, and makes the same requests on each thread, outside any watched function and in
 *                          `inside`. FILE is the account: a line of JSON for each, as `warpscope trace` writes it. */
#include "account.h"

#include <errno.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "cuda.h"

static const char *error_text(long result) {
    static __thread char text[32];
    switch (result < 0 ? errno : 0) {
    case 0: snprintf(text, sizeof text, "%ld", result); break;
    case ENOTTY: return "\"ENOTTY\"";
    case EINVAL: return "\"EINVAL\"";
    default: fprintf(stderr, "devices: %m\n"); exit(2);
    }
    return text;
}

/* Passes the number as an `int`, as CUDA does: the kernel uses the lower half of the register. */
static void request(int file, int number, const char *name, void *argument, const char *command) {
    const char *result = error_text(syscall(SYS_ioctl, file, (long)number, argument));
    if (command)
        account(name, result, ADDRESS("request") ",%s", (unsigned long)(unsigned)number, command);
    else
        account(name, result, ADDRESS("request") "," ADDRESS("argument"), (unsigned long)(unsigned)number,
                (unsigned long)argument);
}

/* Opens a file with each of the system calls for it, in turn. */
static int open_file(const char *name) {
    static __thread int turn;
    int flags = O_RDWR | O_CREAT | O_CLOEXEC, file;
    struct open_how how = {.flags = flags, .mode = 0666};
    switch (turn++ % 3) {
    case 0: file = syscall(SYS_open, name, flags, 0666); break;
    case 1: file = syscall(SYS_openat, AT_FDCWD, name, flags, 0666); break;
    default: file = syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof how);
    }
    if (file < 0 || ftruncate(file, 8192)) exit(2);
    char result[16];
    snprintf(result, sizeof result, "%d", file);
    if (!strncmp(name, "nvidia", 6)) account("open", result, "%s", "");
    return file;
}

static void close_file(int file, int is_device) {
    if (close(file)) exit(2);
    if (is_device) account("close", "0", "%s", "");
}

static void make_requests(int control, int gpu, int uvm, int other) {
    /* NVOS54_PARAMETERS: client, object, command, flags, params, size, status. */
    struct { uint32_t client, object, command, flags; uint64_t params; uint32_t size, status; } ctrl = {1, 2, 0x20800110, 0, 0, 0, 0};
    /* NVOS21_PARAMETERS: root, parent, new, class, params, size, status. */
    struct { uint32_t root, parent, made, class; uint64_t params; uint32_t size, status; } alloc = {1, 2, 3, 0x80, 0, 0, 0};
    ctrl.command = 0x201;
    request(control, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2a, sizeof ctrl), "NV_ESC_RM_CONTROL", &ctrl,
            "\"command\":\"NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS\"");
    ctrl.command = 0xdeadbeef;
    request(gpu, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2a, sizeof ctrl), "NV_ESC_RM_CONTROL", &ctrl, "\"command\":\"0xdeadbeef\"");
    request(control, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2b, sizeof alloc), "NV_ESC_RM_ALLOC", &alloc,
            "\"class\":\"NV01_DEVICE_0\"");
    request(control, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x29, 16), "NV_ESC_RM_FREE", &alloc, NULL);
    request(control, _IOC(_IOC_READ | _IOC_WRITE, 'F', 210, 72), "NV_ESC_CHECK_VERSION_STR", &alloc, NULL);
    request(uvm, 0x30000001, "UVM_INITIALIZE", &alloc, NULL);
    request(uvm, 73, "UVM_CREATE_EXTERNAL_RANGE", NULL, NULL);
    request(uvm, 0x7777, "UVM 0x7777", (void *)0x10, NULL);
    request(gpu, FIOCLEX, "ioctl 0x5451", NULL, NULL);
    /* Not a device, so not traced. */
    if (ioctl(other, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2a, sizeof ctrl), &ctrl) != -1) exit(2);
}

static void map(int gpu, int other) {
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, 4096);
    if (at == MAP_FAILED || munmap(at, 4096)) exit(2);
    char result[32];
    snprintf(result, sizeof result, "\"%p\"", at);
    account("mmap", result, "\"length\":4096,\"protection\":\"rw-\",\"offset\":\"0x1000\"");
    at = mmap(NULL, 0, PROT_READ, MAP_SHARED, gpu, 0);
    account("mmap", error_text(at == MAP_FAILED ? -1 : 0), "\"length\":0,\"protection\":\"r--\",\"offset\":\"0x0\"");
    at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, other, 0);
    if (at == MAP_FAILED || munmap(at, 4096)) exit(2);
    at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || munmap(at, 4096)) exit(2);
}

__attribute__((noinline)) void inside(int control, int gpu, int uvm, int other) {
    account("inside", "0", "%s", "");
    make_requests(control, gpu, uvm, other);
    map(gpu, other);
    account("outside", "0", "%s", "");
}

static void *work(void *unused) {
    int control = open_file("nvidiactl"), gpu = open_file("nvidia0"), uvm = open_file("nvidia-uvm"), other = open_file("anothernvidia0");
    for (int i = 0; i < 10; i++) {
        make_requests(control, gpu, uvm, other);
        inside(control, gpu, uvm, other);
        if (cudaFree(NULL)) exit(2);
    }
    map(gpu, other);
    close_file(other, 0);
    close_file(uvm, 1);
    close_file(gpu, 1);
    close_file(control, 1);
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    account_to(argv[1]);
    int count = atoi(argv[2]);
    pthread_t threads[16];
    for (int i = 0; i < count && i < 16; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < count && i < 16; i++) pthread_join(threads[i], NULL);
    return 0;
}
