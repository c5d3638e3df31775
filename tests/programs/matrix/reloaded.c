/* The libraries of reload.c, with -DNAME=first_library or second_library. */
__attribute__((noipa)) void NAME(void (*callee)(void)) {
    callee();
    __asm__ volatile("" ::: "memory");
}
