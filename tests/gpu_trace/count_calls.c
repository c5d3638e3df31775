/* An independent count of the driver functions that a program calls: a library for CUDA_INJECTION64_PATH that subscribes
 * to all of CUPTI's driver callbacks and counts entries by name. At exit each line of the file COUNT_CALLS is "NAME COUNT".
 * WARPSCOPE_CUPTI names the libcupti to use. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DOMAIN_DRIVER = 1, SITE_ENTER = 0, MOST = 4096 };
typedef struct { uint32_t site; const char *name; } Data;

static struct { atomic_ullong count; const char *_Atomic name; } seen[MOST];

static void on_call(void *user, uint32_t domain, uint32_t id, const Data *data) {
    (void)user;
    if (domain != DOMAIN_DRIVER || id >= MOST || data->site != SITE_ENTER) return;
    atomic_fetch_add(&seen[id].count, 1);
    seen[id].name = data->name;
}

static void write_counts(void) {
    const char *path = getenv("COUNT_CALLS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    for (int i = 0; i < MOST; i++)
        if (seen[i].count) fprintf(file, "%s %llu\n", seen[i].name, (unsigned long long)seen[i].count);
    fclose(file);
}

int InitializeInjection(void) {
    void *cupti = dlopen(getenv("WARPSCOPE_CUPTI") ? getenv("WARPSCOPE_CUPTI") : "libcupti.so", RTLD_NOW);
    if (!cupti) return 0;
    uint32_t (*subscribe)(void **, void *, void *) = (uint32_t (*)(void **, void *, void *))dlsym(cupti, "cuptiSubscribe");
    uint32_t (*enable)(uint32_t, void *, uint32_t) = (uint32_t (*)(uint32_t, void *, uint32_t))dlsym(cupti, "cuptiEnableDomain");
    void *subscriber;
    if (!subscribe || !enable || subscribe(&subscriber, (void *)on_call, NULL) || enable(1, subscriber, DOMAIN_DRIVER)) return 0;
    atexit(write_counts);
    return 1;
}
