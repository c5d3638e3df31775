/* The stack walker: one text, compiled as BPF and natively.
 *
 * A walk holds three registers. Each step finds the row for the current address, computes the canonical frame address
 * (the caller's rsp), and reads the return address below it:
 *
 *        lower addresses                                  higher addresses
 *   rsp -> [ locals ... | saved rbp | return address ] CFA -> [ caller's frame ...
 *
 * A return address points behind its call, which may be the last instruction of a function, so rows are looked up at the
 * address less one: except where the address is that of an instruction about to run, at the start of a walk and where a
 * signal has interrupted. walk_pc() gives the address to look up, which is also the one to symbolise.
 *
 * Before including this, the includer defines:
 *
 *   WALK_CONTEXT                      a type: whatever the three below need; handed through as a pointer, never touched
 *   WALK_READ(context, dst, address)  reads 8 bytes of the target's memory into *dst; 0 on success: in BPF,
 *                                     bpf_probe_read_user(dst, 8, (void *)(address))
 *   static inline int walk_find(WALK_CONTEXT *, __u64 address, struct walk_table *)
 *                                     finds the mapping that holds an address and its table; fills in all fields it
 *                                     uses; 0 on success. A mapping without a table (a JIT's code) has a count of 0.
 *   static inline const struct unwind_row *walk_row(WALK_CONTEXT *, const struct walk_table *, __u32 index)
 *                                     row of a table, NULL if there is none
 *
 * It may also define, to remember rows by address:
 *
 *   WALK_RECALL(context, address, row)    0 if it remembered the row and filled it in
 *   WALK_REMEMBER(context, address, row)  takes note of a row that was searched for
 *
 * The functions take struct walk_table: include walk_types.h, define them, then include this.
 *
 * In BPF the loop over frames is the includer's: bpf_loop() or a few steps per tail call, with walk_step() as the body.
 */
#ifndef WARPSCOPE_UNWIND_WALK_H
#define WARPSCOPE_UNWIND_WALK_H

#include "walk_types.h"

#ifndef WALK_RECALL
#define WALK_RECALL(context, address, row) 1
#define WALK_REMEMBER(context, address, row) ((void)0)
#endif

/* Where the kernel's ucontext keeps the interrupted registers: uc_mcontext at 40, then r8 ... */
#define WALK_UCONTEXT_RBP 120
#define WALK_UCONTEXT_RSP 160
#define WALK_UCONTEXT_RIP 168

/* The address whose row and whose symbol belong to this frame. */
static __always_inline __u64 walk_pc(const struct walk_state *state)
{
	return state->exact ? state->ip : state->ip - 1;
}

/* Starts a walk at an instruction about to run. */
static __always_inline void walk_start(struct walk_state *state, __u64 ip, __u64 sp, __u64 bp)
{
	state->ip = ip;
	state->sp = sp;
	state->bp = bp;
	state->exact = 1;
	state->bp_known = 1;
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

/* Code without rules: take rbp for a frame pointer, [rbp] for the caller's and [rbp + 8] for the return address. */
static __always_inline int walk_frame_pointer(WALK_CONTEXT *context, struct walk_state *state)
{
	__u64 ip, bp;

	(void)context;
	if (!state->bp_known || state->bp < state->sp || (state->bp & 7))
		return WALK_NO_ROW;
	if (WALK_READ(context, &bp, state->bp) || WALK_READ(context, &ip, state->bp + 8))
		return WALK_NO_ROW;
	state->sp = state->bp + 16;
	state->bp = bp;
	state->ip = ip;
	state->exact = 0;
	state->guessed++;
	return ip ? WALK_MORE : WALK_END;
}

/* A signal handler's trampoline: the kernel has put all registers on the stack, which may be another one. */
static __always_inline int walk_signal(WALK_CONTEXT *context, struct walk_state *state)
{
	__u64 ip, sp, bp;

	(void)context;
	if (WALK_READ(context, &bp, state->sp + WALK_UCONTEXT_RBP) || WALK_READ(context, &sp, state->sp + WALK_UCONTEXT_RSP) ||
	    WALK_READ(context, &ip, state->sp + WALK_UCONTEXT_RIP))
		return WALK_BAD_READ;
	walk_start(state, ip, sp, bp);
	return WALK_MORE;
}

/* Computes the CFA. WALK_MORE on success. */
static __always_inline int walk_cfa(WALK_CONTEXT *context, const struct walk_state *state,
				    const struct unwind_row *row, __u64 *cfa)
{
	__u64 base = state->sp;

	(void)context;
	switch (UNWIND_CFA(row)) {
	case UNWIND_CFA_RBP:
	case UNWIND_CFA_RBP_SLOT:
		if (!state->bp_known)
			return WALK_NO_RBP;
		base = state->bp;
	}
	switch (UNWIND_CFA(row)) {
	case UNWIND_CFA_RSP:
	case UNWIND_CFA_RBP:
		*cfa = base + 8 * (__s64)row->cfa_offset;
		return WALK_MORE;
	case UNWIND_CFA_PLT:
		*cfa = base + 8 + ((__s16)(state->ip & 15) >= row->cfa_offset ? 8 : 0);
		return WALK_MORE;
	case UNWIND_CFA_RBP_SLOT:
	case UNWIND_CFA_RSP_SLOT:
		if (WALK_READ(context, cfa, base + 8 * (__s64)UNWIND_SLOT_OFFSET(row)))
			return WALK_BAD_READ;
		*cfa += 8 * UNWIND_SLOT_ADDEND(row);
		return WALK_MORE;
	default:
		return WALK_UNSUPPORTED;
	}
}

/* One step: from a frame to its caller. WALK_MORE, or why there is no caller; the state is then as before the step. */
static __always_inline int walk_step(WALK_CONTEXT *context, struct walk_state *state)
{
	__u64 address = walk_pc(state), cfa = 0, ip = 0, bp = state->bp;
	__u8 bp_known = state->bp_known;
	struct walk_table table = {};
	struct unwind_row row = {};
	int result;

	if (WALK_RECALL(context, address, &row)) {
		if (walk_find(context, address, &table))
			return WALK_NO_MAPPING;
		if (walk_search(context, &table, &row))
			row.rule = UNWIND_CFA_NO_RULE;
		WALK_REMEMBER(context, address, &row);
	}
	if (UNWIND_CFA(&row) == UNWIND_CFA_NO_RULE)
		return walk_frame_pointer(context, state);
	if (UNWIND_CFA(&row) == UNWIND_CFA_END)
		return WALK_END;
	if (UNWIND_CFA(&row) == UNWIND_CFA_SIGNAL)
		return walk_signal(context, state);

	result = walk_cfa(context, state, &row, &cfa);
	if (result != WALK_MORE)
		return result;
	if (cfa <= state->sp)
		return WALK_STUCK;
	if (WALK_READ(context, &ip, cfa - 8))
		return WALK_BAD_READ;
	if (!ip)
		return WALK_END;

	switch (UNWIND_RBP(&row)) {
	case UNWIND_RBP_SAME:
		break;
	case UNWIND_RBP_CFA:
		if (WALK_READ(context, &bp, cfa + 8 * (__s64)row.rbp_offset))
			return WALK_BAD_READ;
		bp_known = 1;
		break;
	case UNWIND_RBP_FRAME:
		if (!bp_known)
			return WALK_NO_RBP;
		if (WALK_READ(context, &bp, state->bp + 8 * (__s64)row.rbp_offset))
			return WALK_BAD_READ;
		break;
	default:
		bp_known = 0;
	}
	state->ip = ip;
	state->sp = cfa;
	state->bp = bp;
	state->bp_known = bp_known;
	state->exact = 0;
	return WALK_MORE;
}

/* A whole walk, innermost frame first. Fills in up to `max` addresses (see walk_pc), returns how many, and says why
 * there are no more. For BPF it is the model, not the code: there the includer bounds the loop and stores frames. */
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
