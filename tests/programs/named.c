/* Launches one kernel ("named") from a path of static functions, main > MODE > path > inner, which only full symbols and debug
 * files can name; `inlined_outer` and `inlined_inner` are inlined into `inner`.
 *
 *   named plain            launches
 *   named delete FILE      deletes FILE first
 *   named replace FILE BY  renames BY to FILE first
 *   named hide DIR         mounts a file system at DIR in its own mount namespace, copies itself there, and runs the copy
 *   named spin SECS        launches nothing, and uses the CPU
 *   named chroot DIR PROGRAM ARGUMENT...
 *                          runs PROGRAM in DIR as its root, then deletes DIR/PROGRAM
 *   named jit WAY          launches from code made at run time, main > jit > (code) > path > inner, and writes its perf map as
 *                          WAY says: `honest`, `twice` (with an older name before), `link` (a symbolic link to an honest one),
 *                          `huge` (over 64 MiB), `garbage`, `foreign` (owned by another user), `none`. Prints the map's path
 * Exits 0 on success. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef WITHOUT_CUDA
#include "cuda.h"
#endif

static void fail(const char *what) {
    perror(what);
    exit(1);
}

#ifdef WITHOUT_CUDA
static void start(void) {}
static void finish(void) {}
static inline int inlined_outer(void) { return 1; }
#else
static char key;

static void start(void) {
    void **handle = __cudaRegisterFatBinary(NULL);
    __cudaRegisterFunction(handle, &key, "named", "named", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
}

static void finish(void) {
    if (cudaDeviceSynchronize() != 0) exit(1);
}

static inline __attribute__((always_inline)) int inlined_inner(void) {
    return cudaLaunchKernel(&key, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL); /* line of inlined_inner */
}

static inline __attribute__((always_inline)) int inlined_outer(void) {
    int result = inlined_inner(); /* line of inlined_outer */
    return result + 1;
}
#endif

static __attribute__((noinline)) int inner(void) {
    int result = inlined_outer(); /* line of inner */
    return result * 3;
}

static __attribute__((noinline)) int path(void) {
    int result = inner(); /* line of path */
    return result + 4;
}

static __attribute__((noinline)) int plain(void) {
    int result = path(); /* line of plain */
    return result == 7 ? 0 : 1;
}

static __attribute__((noinline)) int delete(const char *file) {
    if (unlink(file) != 0) fail(file);
    return path() == 7 ? 0 : 1;
}

static __attribute__((noinline)) int replace(const char *file, const char *by) {
    if (rename(by, file) != 0) fail(file);
    return path() == 7 ? 0 : 1;
}

static void hide(const char *directory) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s/hidden", directory);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) fail("unshare");
    if (mount("none", directory, "tmpfs", 0, NULL) != 0) fail(directory);
    int from = open("/proc/self/exe", O_RDONLY), to = open(copy, O_WRONLY | O_CREAT | O_EXCL, 0755);
    if (from < 0 || to < 0) fail(copy);
    while (sendfile(to, from, NULL, 1 << 20) > 0) continue;
    close(to);
    execl(copy, "hidden", "plain", NULL);
    fail(copy);
}

static __attribute__((noinline)) unsigned spin_for(double seconds) {
    unsigned sum = 1;
    struct timespec used;
    do {
        for (int i = 0; i < 100000; i++) __asm__ volatile("imul $3, %0, %0" : "+r"(sum));
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while ((double)used.tv_sec + (double)used.tv_nsec / 1e9 < seconds);
    return sum;
}

static __attribute__((noinline)) int spin(double seconds) {
    return spin_for(seconds) == 0;
}

static int in_chroot(const char *directory, char **arguments) {
    pid_t child = fork();
    if (child == 0) {
        if (chroot(directory) != 0 || chdir("/") != 0) fail(directory);
        execv(arguments[0], arguments);
        fail(arguments[0]);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("the child");
    char program[4096];
    snprintf(program, sizeof program, "%s/%s", directory, arguments[0]);
    if (unlink(program) != 0) fail(program);
    return 0;
}

static void write_map(const char *way, uintptr_t code, size_t size) {
    char name[64], other[80], line[256];
    snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
    snprintf(other, sizeof other, "%s.honest", name);
    puts(name);
    if (!strcmp(way, "none")) return;
    int is_link = !strcmp(way, "link");
    FILE *map = fopen(is_link ? other : name, "w");
    if (!map) fail(name);
    snprintf(line, sizeof line, "%lx %lx made_at_run_time\n", (unsigned long)code, (unsigned long)size);
    if (!strcmp(way, "twice")) fprintf(map, "%lx 1000 older_name\n", (unsigned long)code & ~0xffful);
    if (!strcmp(way, "garbage")) {
        for (int i = 0; i < 1000; i++) fprintf(map, "%lx\n\xff\xfe;;%d zz\n-1 -1 -1\n", (unsigned long)code, i);
        fprintf(map, "%lx %lx \x1b[31m\xff\n%lx ffffffffffffffff0 long\n", (unsigned long)code, (unsigned long)size,
                (unsigned long)code);
    } else {
        fputs(line, map);
    }
    if (fclose(map) != 0) fail(name);
    if (!strcmp(way, "huge") && truncate(name, (64 << 20) + 1) != 0) fail(name);
    if (!strcmp(way, "foreign") && chown(name, 4242, 4242) != 0) fail(name);
    if (is_link && symlink(other, name) != 0) fail(name);
}

static __attribute__((noinline)) int jit(const char *way) {
    /* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
    static const unsigned char text[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) fail("mmap");
    memcpy(page + 64, text, sizeof text);
    if (mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0) fail("mprotect");
    write_map(way, (uintptr_t)page + 64, sizeof text);
    int (*made)(int (*)(void)) = (int (*)(int (*)(void)))(page + 64);
    return made(path) == 7 ? 0 : 1;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *first = argc > 2 ? argv[2] : "", *second = argc > 3 ? argv[3] : "";
    int status = 2;
    if (!strcmp(mode, "spin")) return spin(atof(first));
    if (!strcmp(mode, "chroot") && argc > 3) return in_chroot(first, argv + 3);
    if (!strcmp(mode, "hide")) hide(first);
    start();
    if (!strcmp(mode, "plain")) status = plain(); /* line of main */
    if (!strcmp(mode, "delete")) status = delete(first);
    if (!strcmp(mode, "replace")) status = replace(first, second);
    if (!strcmp(mode, "jit")) status = jit(first);
    finish();
    return status;
}
