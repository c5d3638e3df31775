/* The launch loop, shared by launch.cu (a real GPU) and launch_sim.c (the simulated one). C and C++.
 *
 *     launch LAUNCHES [DEPTH]       DEPTH: host frames above the loop, default 10
 *
 * launch.py uses it as a library: launch_many() runs the loop, launch_one() one iteration.
 *
 * The includer defines launch_once() and wait_for_gpu(); both exit on an error. */

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void launch_once(void);
static void wait_for_gpu(void);

/* Launches between two waits: fewer than fit in the driver's queue, so that no launch blocks. */
enum { QUEUE = 512, WARM_UP = 2048, MAX_DEPTH = 1000 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* Call paths that launch with the same registers: the bits of a path's number choose between two functions on each level. */
enum { LEVELS = 10 };
static long paths = 1, path;
static void step_0(int level);
static void step_1(int level);

__attribute__((noinline)) static void next_level(int level)
{
    if (level == 0)
        launch_once();
    else if (path >> (level - 1) & 1)
        step_1(level - 1);
    else
        step_0(level - 1);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void step_0(int level)
{
    next_level(level);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void step_1(int level)
{
    next_level(level);
    __asm__ volatile("# not folded into step_0" ::: "memory");
}

__attribute__((noinline)) static void launch_loop(long launches)
{
    for (long i = 1; i <= launches; i++) {
        /* A prime, so that all paths take their turns. */
        path = i * 7919 % paths;
        if (paths > 1)
            next_level(LEVELS);
        else
            launch_once();
        if (i % QUEUE == 0)
            wait_for_gpu();
    }
    wait_for_gpu();
}

#ifdef __cplusplus
extern "C" {
#endif
/* Returns the microseconds per launch. */
__attribute__((visibility("default"))) double launch_many(long launches)
{
    double begin = now_us();
    launch_loop(launches);
    return (now_us() - begin) / launches;
}

/* The caller provides the loop and the counter. */
__attribute__((visibility("default"))) void launch_one(long number)
{
    launch_once();
    if (number % QUEUE == 0)
        wait_for_gpu();
}
#ifdef __cplusplus
}
#endif

/* Runs the loop DEPTH frames further down. The empty asm keeps the call from becoming a jump or a loop. */
__attribute__((noinline)) static void descend(int depth, long launches)
{
    if (depth > 0)
        descend(depth - 1, launches);
    else
        launch_loop(launches);
    __asm__ volatile("" ::: "memory");
}

static long parse_count(const char *text, long least, long most, const char *what)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most) {
        fprintf(stderr, "launch: %s must be a number from %ld to %ld, not '%s'\n", what, least, most, text);
        exit(2);
    }
    return value;
}

static int run(int argc, char **argv)
{
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: launch LAUNCHES [DEPTH [PATHS]]\n");
        return 2;
    }
    long launches = parse_count(argv[1], 1, 1000000000, "LAUNCHES");
    int depth = argc > 2 ? (int)parse_count(argv[2], 0, MAX_DEPTH, "DEPTH") : 10;
    paths = argc > 3 ? parse_count(argv[3], 1, 1 << LEVELS, "PATHS") : 1;
    descend(depth, WARM_UP);
    double begin = now_us();
    descend(depth, launches);
    printf("us_per_launch %.4f\n", (now_us() - begin) / launches);
    return 0;
}
