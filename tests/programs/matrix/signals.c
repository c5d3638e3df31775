/* Signal handlers that launch, on the interrupted stack and on their own stack. They interrupt a function at its first
 * instruction, in the middle of a loop, in libc, in a system call and in the vdso. */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "matrix.h"

/* Its first instruction is invalid, so the signal arrives before anything was done. */
void illegal(void);
__asm__(".text\n .globl illegal\n .type illegal, @function\n"
        "before_illegal: .cfi_startproc\n sub $24, %rsp\n .cfi_adjust_cfa_offset 24\n add $24, %rsp\n"
        ".cfi_adjust_cfa_offset -24\n ret\n push %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_endproc\n"
        "illegal: .cfi_startproc\n ud2\n ret\n .cfi_endproc\n .size illegal, .-illegal\n");

static const char *volatile path;
static volatile sig_atomic_t came;

CASE static void on_signal(int number) {
    (void)number;
    came++;
    ACT(path);
}

CASE static void on_info(int number, siginfo_t *info, void *interrupted) {
    (void)info;
    if (number == SIGILL) ((ucontext_t *)interrupted)->uc_mcontext.gregs[REG_RIP] += 2;
    came++;
    ACT(path);
}

CASE static void by_raise(void) {
    raise(SIGUSR1);
    KEEP;
}

CASE static void at_first_instruction(void) {
    illegal();
    KEEP;
}

/* SIGALRM arrives in a moment. */
INLINE int expect(void) {
    struct itimerval once = {.it_value = {0, 500}};
    int before = came;
    setitimer(ITIMER_REAL, &once, NULL);
    return before;
}

/* The signal arrives at any instruction of these. */
CASE static void in_leaf(void) {
    int before = expect();
    for (volatile long i = 0; came == before;) i++;
}

CASE static void in_libc(void) {
    static char room[1 << 20];
    int before = expect();
    while (came == before) memset(room, came, sizeof room);
}

CASE static void in_vdso(void) {
    int before = expect();
    while (came == before) now();
}

CASE static void in_system_call(void) {
    int before = expect();
    struct timespec time = {10, 0};
    while (came == before) nanosleep(&time, NULL);
}

INLINE void take(int number, int flags) {
    struct sigaction action = {.sa_flags = flags};
    if (flags & SA_SIGINFO)
        action.sa_sigaction = on_info;
    else
        action.sa_handler = on_signal;
    sigaction(number, &action, NULL);
}

/* The path of a case, under either handler. */
#define UNDER(function) (info ? #function ";@system;on_info" : #function ";@system;on_signal")
#define RUN(function)       \
    path = UNDER(function); \
    function();

INLINE void all(int flags) {
    const int info = flags & SA_SIGINFO;
    take(SIGUSR1, flags);
    take(SIGALRM, flags);
    take(SIGILL, flags | SA_SIGINFO);
    RUN(by_raise)
    path = "at_first_instruction;illegal;@system;on_info";
    at_first_instruction();
    RUN(in_leaf)
    RUN(in_libc)
    RUN(in_vdso)
    RUN(in_system_call)
}

int main(int argc, char **argv) {
    stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    start(argc, argv);
    sigaltstack(&other, NULL);
    while (again()) {
        all(0);
        all(SA_ONSTACK);
        all(SA_SIGINFO);
        all(SA_SIGINFO | SA_ONSTACK);
    }
    return end();
}
