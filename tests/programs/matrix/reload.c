/* Two libraries loaded in turn at the same address: `reload launch ROUNDS FIRST.so SECOND.so`. Each has a function with its own
 * name and the same code. Prints `same address` if they were at the same address. */
#include <dlfcn.h>

#include "matrix.h"

CASE static void called_by_first(void) {
    ACT("load;first_library;called_by_first");
}

CASE static void called_by_second(void) {
    ACT("load;second_library;called_by_second");
}

CASE static void *load(const char *file, const char *name, void (*callee)(void)) {
    void *library = dlopen(file, RTLD_NOW);
    void (*function)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, name);
    if (!function) abort();
    for (int i = 0; i < 10; i++) function(callee);
    dlclose(library);
    return (void *)function;
}

int main(int argc, char **argv) {
    int same = 1;
    start(argc, argv);
    while (again())
        same &= load(argv[3], "first_library", called_by_first) == load(argv[4], "second_library", called_by_second);
    if (same) puts("same address");
    return end();
}
