/* Runs a command while empty programs probe functions of a library: their entries, or also their returns. This measures the
 * kernel's own share of the cost of a probed call.
 *   empty entry|both LIBRARY FUNCTION+PLUS[,...] COMMAND...   the probe is PLUS bytes after the function's first byte */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel's definitions, which older headers lack. */
enum { PROG_LOAD = 5, LINK_CREATE = 28, PROG_TYPE_KPROBE = 2, UPROBE_MULTI = 48, AT_RETURN = 1 };

static long bpf(int command, void *attributes, unsigned size) {
    return syscall(SYS_bpf, command, attributes, size);
}

static int load(void) {
    /* r0 = 0; exit */
    static const uint64_t nothing[] = {0x00000000000000b7, 0x0000000000000095};
    struct {
        uint32_t type, instructions;
        uint64_t code, license;
        uint32_t log[4], version, flags;
        char name[16];
        uint32_t interface, attach_type;
    } a = {.type = PROG_TYPE_KPROBE, .instructions = 2, .code = (uintptr_t)nothing, .license = (uintptr_t)"GPL"};
    a.attach_type = UPROBE_MULTI;
    return bpf(PROG_LOAD, &a, sizeof(a));
}

static int attach(int program, const char *file, uint64_t offset, uint32_t flags) {
    struct {
        uint32_t program, target, attach_type, link_flags;
        uint64_t path, offsets, references, cookies;
        uint32_t count, flags, pid, pad;
    } a = {.program = program, .attach_type = UPROBE_MULTI, .path = (uintptr_t)file, .offsets = (uintptr_t)&offset};
    a.count = 1;
    a.flags = flags;
    return bpf(LINK_CREATE, &a, sizeof(a));
}

/* Returns the file offset of an address of this process. */
static uint64_t offset_in_file(uintptr_t address) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    uint64_t found = 0;
    while (maps && fgets(line, sizeof(line), maps)) {
        uintptr_t start, end;
        uint64_t offset;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64, &start, &end, &offset) == 3 && start <= address && address < end)
            found = address - start + offset;
    }
    if (maps) fclose(maps);
    return found;
}

/* Attaches the program to each of the functions; returns a sentence if that fails. */
static const char *attach_all(int program, const char *library, char *functions, int returns) {
    void *opened = dlopen(library, RTLD_NOW);
    if (!opened) return dlerror();
    for (char *next = strtok(functions, ","); next; next = strtok(NULL, ",")) {
        char *plus = strchr(next, '+');
        if (plus) *plus++ = 0;
        void *function = dlsym(opened, next);
        if (!function) return dlerror();
        uint64_t offset = offset_in_file((uintptr_t)function) + (plus ? strtoull(plus, NULL, 0) : 0);
        if ((returns && attach(program, library, offset, AT_RETURN) < 0) || attach(program, library, offset, 0) < 0)
            return "this kernel takes no empty probes";
    }
    return NULL;
}

int main(int count, char **words) {
    if (count < 5) return 2;
    int program = load();
    const char *error = program < 0 ? "this kernel takes no empty programs" : NULL;
    if (!error) error = attach_all(program, words[2], words[3], !strcmp(words[1], "both"));
    if (error) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        execvp(words[4], words + 4);
        _exit(127);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
