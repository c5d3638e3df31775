/* A deep call chain, compiled without frame pointers, that is single-stepped.
 *
 * With the trap flag set, SIGTRAP is raised after every instruction. Its handler walks the interrupted stack twice, with
 * walk.h and with libgcc's unwinder (which evaluates all of DWARF), and compares: in prologues, epilogues, PLT stubs, the
 * loader's symbol search, callbacks from libc, and under signal handlers.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unwind.h>

#include "walk_types.h"

#define MAX_FRAMES 256
#define LEVEL __attribute__((noinline, noclone)) int
#define STACK_SIZE (256 * 1024)

struct mappings;
__u32 walker_walk(const struct mappings *mappings, __u64 ip, const __u64 *registers, __u64 *frames, __u32 max, int *why,
		  __u32 *guessed);

/* The general registers by DWARF number. */
static const int order[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
			      REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

struct outcome {
	__u64 steps, mismatches, guessed;
	__u64 results[WALK_RESULTS];
	__u64 first_mismatch[2]; /* ip, and the frame where the two differ */
	__u64 deepest[MAX_FRAMES];
	__u64 depth;
};

static const struct mappings *mappings;
static struct outcome *outcome;

/* The flag takes effect after the instruction that follows popfq. */
void step_on(void);
void step_off(void);
__asm__(".text\n"
	"step_on: .cfi_startproc\n"
	"pushfq\n .cfi_adjust_cfa_offset 8\n orq $0x100, (%rsp)\n popfq\n .cfi_adjust_cfa_offset -8\n ret\n"
	".cfi_endproc\n"
	"step_off: .cfi_startproc\n"
	"pushfq\n .cfi_adjust_cfa_offset 8\n andq $~0x100, (%rsp)\n popfq\n .cfi_adjust_cfa_offset -8\n ret\n"
	".cfi_endproc\n");

struct trace {
	__u64 from; /* the interrupted instruction: frames of the handler itself are omitted */
	__u64 frames[MAX_FRAMES];
	__u32 depth;
	int started;
};

static _Unwind_Reason_Code collect(struct _Unwind_Context *context, void *argument)
{
	struct trace *trace = argument;
	int exact = 0;
	__u64 ip = _Unwind_GetIPInfo(context, &exact);

	if (exact && ip == trace->from)
		trace->started = 1;
	/* libgcc reports an address of 0 above a frame without a caller. */
	if (trace->started && ip && trace->depth < MAX_FRAMES)
		trace->frames[trace->depth++] = exact ? ip : ip - 1;
	return _URC_NO_REASON;
}

static void on_trap(int signal, siginfo_t *info, void *argument)
{
	const greg_t *registers = ((ucontext_t *)argument)->uc_mcontext.gregs;
	struct trace trace = {.from = registers[REG_RIP]};
	__u64 frames[MAX_FRAMES], general[16];
	__u32 depth, same = 0, guessed;
	int why;

	(void)signal;
	(void)info;
	for (int i = 0; i < 16; i++)
		general[i] = registers[order[i]];
	depth = walker_walk(mappings, registers[REG_RIP], general, frames, MAX_FRAMES, &why, &guessed);
	outcome->steps++;
	outcome->results[why]++;
	outcome->guessed += guessed;
	if (why == WALK_END && depth > outcome->depth) {
		memcpy(outcome->deepest, frames, depth * sizeof(*frames));
		outcome->depth = depth;
	}
	_Unwind_Backtrace(collect, &trace);
	while (same < depth && same < trace.depth && frames[same] == trace.frames[same])
		same++;
	/* A walk that reports a complete stack must be complete; a truncated one must be correct as far as it goes. */
	if (same == depth && (why != WALK_END || depth == trace.depth))
		return;
	if (!outcome->mismatches++) {
		outcome->first_mismatch[0] = registers[REG_RIP];
		outcome->first_mismatch[1] = same;
	}
}

static volatile int sink;

LEVEL bottom(int n)
{
	char text[64];

	/* The first call of a library function goes through the PLT into the loader. */
	snprintf(text, sizeof(text), "%d %.3f", n, n / 7.0);
	return strlen(text) + strtod(text, 0);
}

static void on_user(int signal)
{
	(void)signal;
	step_on();
	sink += bottom(3);
	step_off();
}

/* The kernel clears the trap flag for a handler and restores it after: on_user sets its own. */
LEVEL level_signal(int n)
{
	raise(SIGUSR1);
	return bottom(n) + 1;
}

LEVEL level_large(int n)
{
	volatile char room[70000];

	room[n] = n;
	return level_signal(n) + room[n];
}

/* A local with a large alignment: the stack is realigned, and the CFA is read from memory. */
LEVEL level_aligned(int n)
{
	volatile char line[64] __attribute__((aligned(64)));

	line[n & 63] = n;
	return level_large(n + 1) + line[n & 63];
}

/* Both at once: gcc keeps the old stack pointer in r10 and then in the frame. Its rules for the epilogue are wrong from
 * `pop %rbp` on (they still have rbp in the frame), and libgcc reads wild addresses there: the epilogue is not stepped. */
LEVEL level_aligned_variable(int n)
{
	volatile char line[64] __attribute__((aligned(64)));
	volatile char *room = alloca(n * 16 + 1);
	int sum;

	line[n & 63] = room[n] = n;
	sum = level_aligned(n + 1) + line[n & 63] + room[n];
	step_off();
	return sum;
}

LEVEL level_variable(int n)
{
	volatile char *room = alloca(n * 16 + 1);
	int sum;

	room[n] = n;
	sum = level_aligned_variable(n);
	step_on();
	return sum + room[n];
}

/* More live values than other registers: rbp holds one. */
LEVEL level_registers(int a, int b, int c, int d, int e, int f)
{
	int sum = level_variable(a);

	return sum + a * b + c * d + e * f + level_variable(b) * (a + c) * (b + d) * (e - f);
}

static int compare(const void *left, const void *right)
{
	sink += level_registers(1, 2, 3, 4, 5, *(const int *)left);
	return *(const int *)left - *(const int *)right;
}

LEVEL level_callback(int n)
{
	int numbers[2] = {n, 1};

	qsort(numbers, 2, sizeof(int), compare);
	return numbers[0];
}

LEVEL level_recursive(int n)
{
	return n ? level_recursive(n - 1) + 1 : level_callback(5);
}

int chain_run(const struct mappings *all, struct outcome *result)
{
	struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	struct sigaction user = {.sa_handler = on_user, .sa_flags = SA_ONSTACK};
	/* Handlers of SIGUSR1 run on their own stack: the walk has to cross from one to the other. */
	stack_t other = {.ss_sp = malloc(STACK_SIZE), .ss_size = STACK_SIZE}, old;
	struct sigaction old_trap, old_user;

	mappings = all;
	outcome = result;
	sigaction(SIGTRAP, &trap, &old_trap);
	sigaction(SIGUSR1, &user, &old_user);
	sigaltstack(&other, &old);
	step_on();
	sink += level_recursive(10);
	step_off();
	sigaltstack(&old, 0);
	sigaction(SIGTRAP, &old_trap, 0);
	sigaction(SIGUSR1, &old_user, 0);
	free(other.ss_sp);
	return sink;
}
