/* Keeps every CPU busy below some frames and prints how much work it did.
 *
 *     busy SECONDS DEPTH            prints "rounds N", the total of all threads
 */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CPUS = 4096, TURNS = 100000 };

static double seconds;
static int depth;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static uint64_t spin(uint64_t value)
{
    for (int i = 0; i < TURNS; i++)
        value = value * 6364136223846793005u + 1442695040888963407u;
    return value;
}

__attribute__((noinline)) static long work(void)
{
    double end = now() + seconds;
    uint64_t value = 1;
    long rounds = 0;
    while (now() < end) {
        value = spin(value);
        rounds++;
    }
    return rounds + (value == 0);
}

/* The empty asm keeps the call from becoming a jump or a loop. */
__attribute__((noinline)) static long descend(int left)
{
    long rounds = left > 1 ? descend(left - 1) : work();
    __asm__ volatile("" ::: "memory");
    return rounds;
}

static void *thread(void *rounds)
{
    *(long *)rounds = descend(depth);
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t threads[MAX_CPUS];
    static long rounds[MAX_CPUS];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), all = 0;
    if (argc != 3 || cpus < 1 || cpus > MAX_CPUS) {
        fprintf(stderr, "usage: busy SECONDS DEPTH\n");
        return 2;
    }
    seconds = atof(argv[1]);
    depth = atoi(argv[2]);
    for (long i = 0; i < cpus; i++)
        if (pthread_create(&threads[i], NULL, thread, &rounds[i]) != 0)
            return 1;
    for (long i = 0; i < cpus; i++) {
        pthread_join(threads[i], NULL);
        all += rounds[i];
    }
    printf("rounds %ld\n", all);
    return 0;
}
