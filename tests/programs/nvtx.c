/* Annotates itself as NVTX's header does: loads the library that NVTX_INJECTION64_PATH names, and calls what it installs.
 *
 *   nvtx ROUNDS [early | many | crossed | hostile]
 *
 * Each round is a range `step` with two ranges in it: `forward`, which launches 2 kernels, and a range of the domain `lib`
 * with a registered name and the category `math`, `lib:backward`, which launches 3. Between them a mark is set, and one
 * kernel is launched outside all ranges. A range that is started and ended, not pushed and popped, is around all rounds.
 *
 *   early    a range `early` begins before CUDA is used and is around everything; another one, `over`, also ends before
 *   many     each step has its own name, with numbers as PyTorch's emit_nvtx appends them
 *   crossed  the ranges of the two domains overlap: backward ends after step
 *   hostile  instead of rounds, one kernel in each of 8 ranges whose names try to break what shows them */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "cuda.h"
#include "nvtx.h"

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
} attributes;

static void set_mark(const wchar_t *name) {
    if (core[3]) ((void (*)(const wchar_t *))core[3])(name);
}
static uint64_t start(const char *name) { return core[5] ? ((uint64_t (*)(const char *))core[5])(name) : 0; }
static void end(uint64_t id) {
    if (core[7]) ((void (*)(uint64_t))core[7])(id);
}
static void *create(const char *name) { return core2[12] ? ((void *(*)(const char *))core2[12])(name) : NULL; }
static void *registered(void *domain, const char *name) {
    return core2[10] ? ((void *(*)(void *, const char *))core2[10])(domain, name) : NULL;
}
static void name_category(void *domain, uint32_t category, const char *name) {
    if (core2[8]) ((void (*)(void *, uint32_t, const char *))core2[8])(domain, category, name);
}
static int domain_push(void *domain, void *name, uint32_t category) {
    attributes a = {.version = 3, .size = sizeof a, .category = category, .message_type = 3, .message = name};
    return core2[4] ? ((int (*)(void *, const attributes *))core2[4])(domain, &a) : -2;
}
static int domain_pop(void *domain) { return core2[5] ? ((int (*)(void *))core2[5])(domain) : -2; }

static char host[8], kernel[] = "work";

static void launch(int count) {
    for (int i = 0; i < count; i++)
        if (cudaLaunchKernel(host, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL)) exit(3);
}

/* Ranges with names that control a terminal, forge lines, look like formulas, are no UTF-8, are empty, or are huge. */
static void launch_in_hostile_ranges(void) {
    static char huge[1 << 20];
    memset(huge, 'x', sizeof huge - 1);
    const char *const names[] = {"a\033[2J\033]0;b\007c", "d\nwarpscope: forged\r\n", "=1+1", "-2+3,\"e\"", "\xff\xfe\xc3(",
                                 "f\xe2\x80\xae\xe2\x80\x8f</script><b>", "", huge};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        push(names[i]);
        launch(1);
        pop();
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    const char *form = argc > 2 ? argv[2] : "";
    int early = !strcmp(form, "early"), many = !strcmp(form, "many"), crossed = !strcmp(form, "crossed");
    initialise();
    if (early) {
        push("early");
        push("over");
        pop();
    }
    __cudaRegisterFunction(__cudaRegisterFatBinary(NULL), host, kernel, kernel, -1, NULL, NULL, NULL, NULL, NULL);
    launch(1);
    if (!strcmp(form, "hostile")) {
        launch_in_hostile_ranges();
        return cudaDeviceSynchronize();
    }
    void *lib = create("lib"), *backward = registered(lib, "backward");
    name_category(lib, 7, "math");
    uint64_t all = start("all rounds");
    int failed = 0, level = core[9] ? early : -2;
    for (int i = 0; i < rounds; i++) {
        char name[64] = "step";
        if (many) snprintf(name, sizeof name, "step %d, seq = %d, op_id = %d", i % 2, i, 2 * i);
        failed |= push(name) != level;
        push("forward");
        launch(2);
        pop();
        set_mark(L"h\u00e4lf");
        failed |= domain_push(lib, backward, 7) != (core2[4] ? 0 : -2);
        if (!crossed) launch(3);
        if (!crossed) domain_pop(lib);
        failed |= pop() != level;
        if (crossed) launch(3);
        if (crossed) domain_pop(lib);
        launch(1);
    }
    end(all);
    if (early) pop();
    if (core[11] && pop() != -1) return 5; /* none is open */
    if (failed) return 6;
    return cudaDeviceSynchronize();
}
