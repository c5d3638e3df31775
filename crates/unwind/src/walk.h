/* The stack walker: one source, compiled as BPF and natively.
 *
 * A walk tracks four registers: rip, rsp, rbp, and rbx, which some code uses for its frame's address. Each step finds the
 * row for the current address, computes the canonical frame address (the caller's rsp), and reads the return address
 * below it:
 *
 *        lower addresses                                  higher addresses
 *   rsp -> [ locals ... | saved rbp | return address ] CFA -> [ caller's frame ...
 *
 * A return address points behind its call, which may be the last instruction of a function, so rows are looked up at the
 * address minus one, except if the address is that of an instruction about to run: at the start of a walk and where a
 * signal has interrupted. walk_pc() returns the address to look up, which is also the one to symbolise.
 *
 * Before including this, the includer defines:
 *
 *   WALK_CONTEXT                      a type for the data of the three below; passed through as a pointer, never accessed
 *   WALK_READ(context, dst, address)  reads 8 bytes of the target's memory into *dst; 0 on success: in BPF,
 *                                     bpf_probe_read_user(dst, 8, (void *)(address))
 *   static inline int walk_find(WALK_CONTEXT *, __u64 address, struct walk_table *)
 *                                     finds the mapping that contains an address and its table; fills in all fields it
 *                                     uses; 0 on success. A mapping without a table (a JIT's code) has a count of 0.
 *   static inline const struct unwind_row *walk_row(WALK_CONTEXT *, const struct walk_table *, __u32 index)
 *                                     row of a table, NULL if there is none
 *
 * It may also define, to cache rows by address, to provide the registers at the start of the walk, and to see through
 * return probes:
 *
 *   WALK_RECALL(context, address, row)    0 if the row was cached and filled in
 *   WALK_REMEMBER(context, address, row)  caches a row that was searched for
 *   WALK_REGISTER(context, number, value) 0 if the register with this DWARF number was known and filled in
 *   WALK_UNKNOWN(context)                 notes that the walk ends at a function that has not been compiled yet
 *   WALK_RETURN(context, state, slot, ip) corrects the return address found at an address of the stack
 *
 * The functions use struct walk_table: include walk_types.h, define them, then include this.
 *
 * In BPF the includer provides the loop over frames: bpf_loop() or a few steps per tail call, with walk_step() as the body.
 *
 * The walker stores only the location of a saved register. It is read when a rule needs it, which is rare: most frames
 * cost one read of the stack.
 */
#ifndef WARPSCOPE_UNWIND_WALK_H
#define WARPSCOPE_UNWIND_WALK_H

#include "walk_types.h"

#ifndef WALK_RECALL
#define WALK_RECALL(context, address, row) 1
#define WALK_REMEMBER(context, address, row) ((void)0)
#endif

#ifndef WALK_LOOK_UP
#define WALK_LOOK_UP(context, address, row) walk_look_up(context, address, row)
#endif
#ifndef WALK_UNKNOWN
#define WALK_UNKNOWN(context) ((void)0)
#endif
#ifndef WALK_RETURN
#define WALK_RETURN(context, state, slot, ip) ((void)0)
#endif
#ifndef WALK_REGISTER
#define WALK_REGISTER(context, number, value) 1
#endif

/* The offsets of the interrupted registers in the kernel's ucontext: uc_mcontext at 40, with r8 to r15, then rdi ... */
#define WALK_UCONTEXT_R8 40
#define WALK_UCONTEXT_RDI 104
#define WALK_UCONTEXT_RBP 120
#define WALK_UCONTEXT_RBX 128
#define WALK_UCONTEXT_RSP 160
#define WALK_UCONTEXT_RIP 168
/* Their order, one digit for each of the DWARF numbers 7 to 0: rsp, rbp, rdi, rsi, rbx, rcx, rdx, rax. */
#define WALK_UCONTEXT_ORDER 0x72013645

/* Returns the address to use for this frame's row and symbol. */
static __always_inline __u64 walk_pc(const struct walk_state *state)
{
	return state->exact ? state->ip : state->ip - 1;
}

/* Starts a walk at an instruction about to run. */
static __always_inline void walk_start(struct walk_state *state, __u64 ip, __u64 sp, __u64 bp, __u64 bx)
{
	state->ip = ip;
	state->sp = sp;
	state->bp = bp;
	state->bx = bx;
	state->context = 0;
	state->exact = 1;
	state->bp_kind = WALK_VALUE;
	state->bx_kind = WALK_VALUE;
	state->by_register = 0;
	state->guessed = 0;
}

/* Finds the last row at or below table->pc. 0 on success. */
static __always_inline int walk_search(WALK_CONTEXT *context, const struct walk_table *table, struct unwind_row *found)
{
	__u32 low = 0, high = table->count;
	int missing = 1;

	for (int step = 0; step < UNWIND_SEARCH_STEPS; step++) {
		const struct unwind_row *row;
		__u32 middle;

		if (low >= high)
			break;
		middle = low + ((high - low) >> 1);
		row = walk_row(context, table, middle);
		if (!row)
			return 1;
		if (row->pc <= table->pc) {
			*found = *row;
			missing = 0;
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return missing || low < high;
}

/* Replaces the address of a register's value by the value, if necessary. */
static __always_inline int walk_value(WALK_CONTEXT *context, __u64 *value, __u8 *kind)
{
	(void)context;
	if (*kind == WALK_VALUE)
		return WALK_MORE;
	if (*kind == WALK_LOST)
		return WALK_NO_REGISTER;
	if (WALK_READ(context, value, *value))
		return WALK_BAD_READ;
	*kind = WALK_VALUE;
	return WALK_MORE;
}

/* Code without rules: use rbp as a frame pointer, with the caller's at [rbp] and the return address at [rbp + 8]. */
static __always_inline int walk_frame_pointer(WALK_CONTEXT *context, struct walk_state *state)
{
	__u64 ip, bp = state->bp;
	__u8 kind = state->bp_kind;

	if (walk_value(context, &bp, &kind) != WALK_MORE || bp < state->sp || (bp & 7))
		return WALK_NO_ROW;
	if (WALK_READ(context, &ip, bp + 8))
		return WALK_NO_ROW;
	WALK_RETURN(context, state, bp + 8, &ip);
	state->sp = bp + 16;
	state->bp = bp;
	state->bp_kind = WALK_SLOT;
	state->bx_kind = WALK_LOST;
	state->ip = ip;
	state->exact = 0;
	state->guessed++;
	return ip ? WALK_MORE : WALK_END;
}

/* A signal handler's trampoline: the kernel has saved all registers on the stack, which may be another one. */
static __always_inline int walk_signal(WALK_CONTEXT *context, struct walk_state *state)
{
	__u64 ip, sp, registers = state->sp;

	(void)context;
	if (WALK_READ(context, &sp, registers + WALK_UCONTEXT_RSP) || WALK_READ(context, &ip, registers + WALK_UCONTEXT_RIP))
		return WALK_BAD_READ;
	state->ip = ip;
	state->sp = sp;
	state->bp = registers + WALK_UCONTEXT_RBP;
	state->bx = registers + WALK_UCONTEXT_RBX;
	state->bp_kind = WALK_SLOT;
	state->bx_kind = WALK_SLOT;
	state->context = registers;
	state->exact = 1;
	return WALK_MORE;
}

/* Returns a register by its number. Except for rbx, registers are known only in a frame that did not call the next one: it
 * was interrupted, or is the innermost. */
static __always_inline int walk_register(WALK_CONTEXT *context, struct walk_state *state, __u32 number, __u64 *value)
{
	if (number == UNWIND_REGISTER_RBX) {
		int result;

		if (state->bx_kind == WALK_VALUE)
			state->by_register = 1;
		result = walk_value(context, &state->bx, &state->bx_kind);
		*value = state->bx;
		return result;
	}
	if (!state->exact)
		return WALK_NO_REGISTER;
	if (state->context) {
		__u64 place = WALK_UCONTEXT_R8 + 8 * ((__u64)number - 8);

		if (number < 8)
			place = WALK_UCONTEXT_RDI + 8 * (WALK_UCONTEXT_ORDER >> 4 * number & 15);
		return WALK_READ(context, value, state->context + place) ? WALK_BAD_READ : WALK_MORE;
	}
	state->by_register = 1;
	return WALK_REGISTER(context, number, value) ? WALK_NO_REGISTER : WALK_MORE;
}

/* Computes the CFA. WALK_MORE on success. */
static __always_inline int walk_cfa(WALK_CONTEXT *context, struct walk_state *state, const struct unwind_row *row,
				    __u64 *cfa)
{
	__u64 base = state->sp;
	int result;

	switch (UNWIND_CFA(row)) {
	case UNWIND_CFA_RBP:
	case UNWIND_CFA_RBP_SLOT:
		result = walk_value(context, &state->bp, &state->bp_kind);
		if (result != WALK_MORE)
			return result;
		base = state->bp;
		break;
	case UNWIND_CFA_REGISTER:
		result = walk_register(context, state, UNWIND_LOW(row), &base);
		if (result != WALK_MORE)
			return result;
		break;
	case UNWIND_CFA_THREAD:
		result = walk_register(context, state, UNWIND_REGISTER_RAX, &base);
		if (result != WALK_MORE)
			return result;
		if (!base)
			return WALK_END;
		*cfa = state->sp + 8;
		return WALK_MORE;
	}
	switch (UNWIND_CFA(row)) {
	case UNWIND_CFA_RSP:
	case UNWIND_CFA_RBP:
		*cfa = base + 8 * (__s64)row->cfa_offset;
		return WALK_MORE;
	case UNWIND_CFA_REGISTER:
	case UNWIND_CFA_RETURN:
		*cfa = base + 8 * (__s64)UNWIND_HIGH(row);
		return WALK_MORE;
	case UNWIND_CFA_PLT:
		*cfa = base + 8 + ((__s16)(state->ip & 15) >= row->cfa_offset ? 8 : 0);
		return WALK_MORE;
	case UNWIND_CFA_RBP_SLOT:
	case UNWIND_CFA_RSP_SLOT:
		if (WALK_READ(context, cfa, base + 8 * (__s64)UNWIND_HIGH(row)))
			return WALK_BAD_READ;
		*cfa += 8 * UNWIND_LOW(row);
		return WALK_MORE;
	default:
		return WALK_UNSUPPORTED;
	}
}

/* Finds a register of the caller. `bp` is this frame's, if `bp_kind` says that its value is known. */
static __always_inline void walk_saved(__u32 saved, __u64 cfa, __u64 bp, __u8 bp_kind, __u64 *place, __u8 *kind)
{
	if (saved == UNWIND_SAVED_SAME)
		return;
	*kind = WALK_SLOT;
	if (saved == UNWIND_SAVED_LOST)
		*kind = WALK_LOST;
	else if (saved < UNWIND_SAVED_FRAME)
		*place = cfa - 8 * (__u64)saved;
	else if (bp_kind == WALK_VALUE)
		*place = bp + 8 * ((__s64)saved - UNWIND_SAVED_ZERO);
	else
		*kind = WALK_LOST;
}

/* Finds the row for an address. 0 on success. */
static __always_inline int walk_look_up(WALK_CONTEXT *context, __u64 address, struct unwind_row *row)
{
	struct walk_table table = {};

	if (!WALK_RECALL(context, address, row))
		return 0;
	if (walk_find(context, address, &table))
		return 1;
	if (walk_search(context, &table, row))
		row->rule = UNWIND_CFA_NO_RULE;
	if (UNWIND_CFA(row) == UNWIND_CFA_UNKNOWN) {
		WALK_UNKNOWN(context);
		return 1;
	}
	WALK_REMEMBER(context, address, row);
	return 0;
}

/* Steps from a frame to its caller. Returns WALK_MORE, or why there is no caller; ip and sp are then unchanged. */
static __always_inline int walk_step(WALK_CONTEXT *context, struct walk_state *state)
{
	__u64 address = walk_pc(state), cfa = 0, ip = 0, bp;
	struct unwind_row row = {};
	__u8 bp_kind;
	int result;

	if (WALK_LOOK_UP(context, address, &row))
		return WALK_NO_MAPPING;
	if (UNWIND_CFA(&row) == UNWIND_CFA_NO_RULE)
		return walk_frame_pointer(context, state);
	if (UNWIND_CFA(&row) == UNWIND_CFA_END)
		return WALK_END;
	if (UNWIND_CFA(&row) == UNWIND_CFA_SIGNAL)
		return walk_signal(context, state);

	result = walk_cfa(context, state, &row, &cfa);
	if (result != WALK_MORE)
		return result;
	if (UNWIND_CFA(&row) == UNWIND_CFA_RETURN) {
		result = walk_register(context, state, UNWIND_LOW(&row), &ip);
		if (result != WALK_MORE)
			return result;
	} else if (cfa <= state->sp) {
		return WALK_STUCK;
	} else if (WALK_READ(context, &ip, cfa - 8)) {
		return WALK_BAD_READ;
	} else {
		WALK_RETURN(context, state, cfa - 8, &ip);
	}
	if (!ip)
		return WALK_END;

	if (UNWIND_RBP(&row) >= UNWIND_SAVED_FRAME || UNWIND_RBX(&row) >= UNWIND_SAVED_FRAME)
		walk_value(context, &state->bp, &state->bp_kind);
	bp = state->bp;
	bp_kind = state->bp_kind;
	walk_saved(UNWIND_RBP(&row), cfa, bp, bp_kind, &state->bp, &state->bp_kind);
	walk_saved(UNWIND_RBX(&row), cfa, bp, bp_kind, &state->bx, &state->bx_kind);
	state->ip = ip;
	state->sp = cfa;
	state->exact = 0;
	return WALK_MORE;
}

/* Walks a whole stack, innermost frame first. Fills in up to `max` addresses (see walk_pc), returns their number and why
 * the walk ended. In BPF this is not used: there the includer bounds the loop and stores frames. */
static __always_inline __u32 walk(WALK_CONTEXT *context, struct walk_state *state, __u64 *frames, __u32 max, int *why)
{
	__u32 depth = 0;

	*why = WALK_TRUNCATED;
	while (depth < max) {
		int result;

		frames[depth++] = walk_pc(state);
		result = walk_step(context, state);
		if (result != WALK_MORE) {
			*why = result;
			break;
		}
	}
	return depth;
}

#endif
