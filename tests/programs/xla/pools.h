/* What the stand-in for XLA's thread pools offers to programs in C and Python. */
#ifndef TEST_POOLS_H
#define TEST_POOLS_H

/* EIGEN has two threads, the others have one. FULL is EIGEN with a full queue: it runs a task at once. */
enum pool { EIGEN, WORKER, QUEUE, FULL };
/* Where the callable keeps the task: in itself, so that equal tasks look alike, or in memory of its own. */
enum state { INSIDE, OUTSIDE };

#ifdef __cplusplus
extern "C" {
#endif
/* Hands a task to a pool. */
void pool_schedule(enum pool pool, enum state state, void (*apply)(void *), void *argument);
/* Returns when all tasks have ended. */
void pool_wait(void);
#ifdef __cplusplus
}
#endif

#endif
