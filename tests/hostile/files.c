/* A CUDA program that maps or truncates hostile files. `files MODE FILE...`; prints `done`, then waits for the end of its
 * input.
 *
 *   call   loads every FILE as a library and allocates through its function `through`, so that the file is on the stack
 *   map    maps every FILE as code
 *   cut    calls as above, while another thread truncates the FILEs and rewrites them; prints `done` first
 *   trim   only truncates the FILEs and rewrites them; prints `done` first
 *   storm  maps FILE as code at a new address, again and again, until its input ends; prints `done` first */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int cudaMalloc(void **memory, size_t size);

static char **files;
static int count;
static volatile int finished;

/* Also uses 20 ms of CPU time, so that a sampler finds the libraries on the stack. */
__attribute__((noinline)) void allocate(void) {
    clock_t until = clock() + CLOCKS_PER_SEC / 50;
    void *memory;

    if (cudaMalloc(&memory, 1 << 10)) exit(3);
    while (clock() < until) continue;
}

static void call(const char *name) {
    void *library = dlopen(name, RTLD_NOW);
    void (*through)(void (*)(void)) = library ? (void (*)(void (*)(void)))dlsym(library, "through") : NULL;

    if (!through) {
        fprintf(stderr, "%s\n", dlerror());
        exit(4);
    }
    through(allocate);
}

static void map(const char *name) {
    int file = open(name, O_RDONLY);

    if (file < 0 || mmap(NULL, 1 << 16, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) exit(5);
    close(file);
}

/* Truncates code that this program no longer runs, and never overwrites it with other code. */
static void *cut(void *nothing) {
    static char bytes[8 << 20];

    while (!finished)
        for (int i = 0; i < count && !finished; i++) {
            int file = open(files[i], O_RDWR);
            ssize_t length = read(file, bytes, sizeof bytes);
            if (length > 0) {
                if (ftruncate(file, 100)) exit(6);
                usleep(200);
                if (pwrite(file, bytes, (size_t)length, 0) != length) exit(7);
            }
            close(file);
        }
    return nothing;
}

static void *storm(void *nothing) {
    enum { LENGTH = 4096 };
    int file = open(files[0], O_RDONLY);
    char *address = (char *)0x10000000000;

    while (!finished) {
        if (mmap(address, LENGTH, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0) == MAP_FAILED) exit(8);
        munmap(address, LENGTH);
        address += 2 * LENGTH;
    }
    return nothing;
}

int main(int arguments, char **argv) {
    const char *mode = argv[1];
    pthread_t thread;
    char line[64];

    files = argv + 2;
    count = arguments - 2;
    int is_storm = !strcmp(mode, "storm"), is_trim = !strcmp(mode, "trim"), cuts = is_trim || !strcmp(mode, "cut");
    allocate();
    if (is_storm) pthread_create(&thread, NULL, storm, NULL);
    for (int i = 0; i < count && !is_storm && !is_trim; i++) (!strcmp(mode, "map") ? map : call)(files[i]);
    if (cuts) pthread_create(&thread, NULL, cut, NULL);
    puts("done");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) continue;
    finished = 1;
    if (cuts || is_storm) pthread_join(thread, NULL);
    return 0;
}
