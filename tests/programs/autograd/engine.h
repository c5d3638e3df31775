/* What the stand-in for PyTorch's autograd engine offers to programs in C and Python. */
#ifndef TEST_ENGINE_H
#define TEST_ENGINE_H

enum { CALLER = -1, DEVICES = 2 };

/* A node of the backward graph: what to do, and on which device's thread. CALLER: on the thread that called backward. */
struct work {
    int device;
    void (*apply)(void *);
    void *argument;
    unsigned long number; /* that engine_number returned when the node was made, plus 1; 0 for none */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Runs the nodes and, on the thread that completes the last one, `completed`, if its function is not null. Without nodes, an
 * exception leaves the engine's function. */
void engine_backward(const struct work *nodes, int count, struct work completed);
/* Makes a node: returns its number, which counts for each thread. */
unsigned long engine_number(void);
#ifdef __cplusplus
}
#endif

#endif
