/* Stacks that a program switches by hand: makecontext and swapcontext, and a coroutine in a few instructions. */
#include <ucontext.h>

#include "matrix.h"

static ucontext_t outside, inside;

CASE static void in_context(void) {
    ACT("in_context");
}

CASE static void context_body(void) {
    for (;;) {
        root = "bare|@system;context_body";
        in_context();
        root = ROOT_MAIN;
        swapcontext(&inside, &outside);
    }
}

CASE static void by_swapcontext(void) {
    swapcontext(&outside, &inside);
    KEEP;
}

/* Saves the callee-saved registers, and continues on the other stack where it was left. */
void switch_stacks(void **from, void *to);
__asm__(".text\n .globl switch_stacks\n .type switch_stacks, @function\n"
        "switch_stacks: .cfi_startproc\n"
        "push %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbp, 0\n push %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"
        "push %r12\n .cfi_adjust_cfa_offset 8\n push %r13\n .cfi_adjust_cfa_offset 8\n"
        "push %r14\n .cfi_adjust_cfa_offset 8\n push %r15\n .cfi_adjust_cfa_offset 8\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n .cfi_adjust_cfa_offset -8\n pop %r14\n .cfi_adjust_cfa_offset -8\n"
        "pop %r13\n .cfi_adjust_cfa_offset -8\n pop %r12\n .cfi_adjust_cfa_offset -8\n"
        "pop %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n pop %rbp\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbp\n"
        "ret\n .cfi_endproc\n .size switch_stacks, .-switch_stacks\n");

static void *outside_stack, *inside_stack;

CASE static void in_coroutine(void) {
    ACT("in_coroutine");
}

CASE static void coroutine_body(void) {
    for (;;) {
        root = "coroutine_body";
        in_coroutine();
        root = ROOT_MAIN;
        switch_stacks(&inside_stack, outside_stack);
    }
}

CASE static void by_coroutine(void) {
    switch_stacks(&outside_stack, inside_stack);
    KEEP;
}

/* A new stack: six registers, the start address, and no caller. */
CASE static void prepare(void) {
    enum { SIZE = 1 << 18 };
    void **top = (void **)((char *)aligned_alloc(64, SIZE) + SIZE);
    *--top = NULL;
    *--top = (void *)coroutine_body;
    for (int i = 0; i < 6; i++) *--top = NULL;
    inside_stack = top;
    getcontext(&inside);
    inside.uc_stack.ss_sp = aligned_alloc(64, SIZE);
    inside.uc_stack.ss_size = SIZE;
    inside.uc_link = NULL;
    makecontext(&inside, context_body, 0);
}

int main(int argc, char **argv) {
    start(argc, argv);
    prepare();
    while (again()) {
        by_swapcontext();
        by_coroutine();
    }
    return end();
}
