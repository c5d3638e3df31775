/* Calls into a library through the PLT, bound lazily or at the start, and callbacks; and code that runs inside the loader
 * and the C library: ifunc resolvers, exit handlers, the end of a thread. */
#include <pthread.h>

#include "matrix.h"

long plugin_calls(long (*)(long), long);
extern void (*plugin_at_resolution)(void);
long indirect0(long), indirect1(long), indirect2(long), indirect3(long);

CASE static long called_back(long n) {
    ACT("through_plt;plugin_calls;called_back");
    return n;
}

CASE static long through_plt(long n) {
    return plugin_calls(called_back, n) + 1;
}

static const char *resolving;

CASE static void at_resolution(void) {
    for (int i = 0; i < (busy ? 20000 : 20); i++) ACT(resolving);
}

/* The first call of each goes through the loader's trampoline, later ones do not. */
#define FIRST_CALL(number)                                                                            \
    CASE static long first_call##number(long n) {                                                     \
        resolving = "first_call" #number ";@system;resolve" #number ";at_resolution";                 \
        return indirect##number(n) + 1;                                                               \
    }
FIRST_CALL(0) FIRST_CALL(1) FIRST_CALL(2) FIRST_CALL(3)

static pthread_key_t key;

CASE static void at_thread_end(void *value) {
    (void)value;
    root = "@system;at_thread_end";
    enter_thread();
    ACT("");
}

CASE static void *worker(void *argument) {
    pthread_setspecific(key, argument);
    return NULL;
}

CASE static void at_exit(void) {
    root = "_start;@system;at_exit";
    ACT("");
}

int main(int argc, char **argv) {
    pthread_t thread;
    start(argc, argv);
    plugin_at_resolution = at_resolution;
    pthread_key_create(&key, at_thread_end);
    if (pthread_create(&thread, NULL, worker, &key) || pthread_join(thread, NULL)) abort();
    first_call0(1);
    first_call1(1);
    first_call2(1);
    first_call3(1);
    while (again()) through_plt(1);
    atexit(at_exit);
    if (!busy) launched++;
    return end();
}
