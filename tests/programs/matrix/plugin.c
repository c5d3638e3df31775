/* A library for plt.c: functions reached through the PLT, one that calls back, and one whose address our ifunc resolver finds
 * at the first call. */
#define FUNCTION __attribute__((noipa))

FUNCTION long plugin_calls(long (*function)(long), long n) {
    return function(n) + 1;
}

/* Set by the program before the first call. */
void (*plugin_at_resolution)(void);

static long found(long n) {
    return n + 1;
}

/* Runs inside the loader, in the middle of the first call. */
#define INDIRECT(number)                                                                      \
    FUNCTION static long (*resolve##number(void))(long) {                                     \
        if (plugin_at_resolution) plugin_at_resolution();                                     \
        return found;                                                                         \
    }                                                                                         \
    long indirect##number(long) __attribute__((ifunc("resolve" #number)));
INDIRECT(0) INDIRECT(1) INDIRECT(2) INDIRECT(3)
