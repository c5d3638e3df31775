/* Tasks handed to the threads of a stand-in for XLA's pools: every kernel's name is the path that it belongs under, as in
 * autograd/train.c.
 *
 *   compile ROUNDS
 *
 * The kernels `alike` are those of equal tasks that two functions handed over before any of them began: which one belongs to
 * which function cannot be known. Prints `kernels N`.
 *
 * The functions `start` and `call` are for jit.py, which loads this as a library. */
#include <semaphore.h>

#include "../launch_by_name.h"
#include "pools.h"

__attribute__((noinline)) void work(void *name) { launch(name); }

/* One task for each pool and form. */
#define FUNCTION(name, pool, state)                                                                                        \
    __attribute__((noinline)) void name(void) {                                                                            \
        pool_schedule(pool, state, work, #name "|work");                                                                   \
        work(#name ">work");                                                                                               \
    }
FUNCTION(eigen_inside, EIGEN, INSIDE)
FUNCTION(eigen_outside, EIGEN, OUTSIDE)
FUNCTION(worker_inside, WORKER, INSIDE)
FUNCTION(worker_outside, WORKER, OUTSIDE)
FUNCTION(queue_inside, QUEUE, INSIDE)
FUNCTION(queue_outside, QUEUE, OUTSIDE)

/* Tasks that are run at once. */
__attribute__((noinline)) void full(void) {
    pool_schedule(FULL, INSIDE, work, "full>work");
    pool_schedule(FULL, OUTSIDE, work, "full>work");
}

/* Tasks that hand over others, to the same pool and to another one: all belong under the first call. */
__attribute__((noinline)) void third(void *unused) {
    (void)unused;
    pool_schedule(WORKER, OUTSIDE, work, "chain|work");
    work("chain|third");
}
__attribute__((noinline)) void second(void *unused) {
    (void)unused;
    pool_schedule(EIGEN, OUTSIDE, third, NULL);
    pool_schedule(EIGEN, INSIDE, work, "chain|work");
    pool_schedule(FULL, OUTSIDE, work, "chain|second>work");
    work("chain|second");
}
__attribute__((noinline)) void chain(void) { pool_schedule(QUEUE, OUTSIDE, second, NULL); }

/* Equal tasks at the same time: while the only thread of this pool waits, none of them can begin. */
static sem_t gate;
static void wait_at_gate(void *unused) {
    (void)unused;
    sem_wait(&gate);
}
__attribute__((noinline)) void left(char *name) { pool_schedule(WORKER, INSIDE, work, name); }
__attribute__((noinline)) void right(char *name) { pool_schedule(WORKER, INSIDE, work, name); }
static void equal(void) {
    static char alike[] = "alike", same[] = "left|work";
    static volatile int twice = 2; /* the loop stays one: both calls have the same stack */
    pool_schedule(WORKER, OUTSIDE, wait_at_gate, NULL);
    left(alike);
    right(alike);
    for (int i = 0; i < twice; i++) left(same);
    sem_post(&gate);
}

/* Another thread hands over tasks at the same time. */
static int rounds;
__attribute__((noinline)) void beside(void) { pool_schedule(EIGEN, OUTSIDE, work, "beside|work"); }
static void *repeat_beside(void *unused) {
    for (int i = 0; i < rounds; i++) beside();
    return unused;
}

/* For Python: one task, and waits for it. */
void call(char *name) {
    pool_schedule(EIGEN, OUTSIDE, work, name);
    pool_wait();
}

int main(int count, char **arguments) {
    pthread_t other;
    rounds = count > 1 ? atoi(arguments[1]) : 1;
    start();
    sem_init(&gate, 0, 0);
    pthread_create(&other, NULL, repeat_beside, NULL);
    for (int i = 0; i < rounds; i++) {
        eigen_inside(), eigen_outside(), worker_inside(), worker_outside(), queue_inside(), queue_outside();
        full();
        chain();
        equal();
        pool_wait();
    }
    pthread_join(other, NULL);
    pool_wait();
    if (cudaDeviceSynchronize()) fail("cudaDeviceSynchronize");
    printf("kernels %d\n", launched);
    return 0;
}
