/* SPDX-License-Identifier: MIT */
/*
 * Calls that repeat an earlier one: launches of a kernel with the same dimensions, and lookups of the same handle. Their
 * returns are mostly of no interest, and each costs a trap, so session probes decide at the entry whether to watch it.
 *
 * - Every launch is counted. One repeated launch in RETURN_SAMPLING, chosen at random, is watched to its end: its duration
 *   stands for those that follow. A launch with other dimensions than the last one is always watched, so an error
 *   of its configuration is seen.
 * - A lookup is skipped until something that can change its result happens: a new name, or another context.
 * - While the return of a runtime function is not watched, the driver's launch within it is recognised by its caller: code
 *   of the runtime.
 */
#ifndef WARPSCOPE_REPEATED_H
#define WARPSCOPE_REPEATED_H

#include "sums.h"

#define RETURN_SAMPLING 16

/* Before 7.0 it has no parameter. */
extern bool bpf_session_is_return(void *ctx) __weak __ksym;
extern bool bpf_session_is_return___before_7(void) __weak __ksym;

struct lookup_key {
	u64 address; /* what is looked up */
	u32 image;
	u32 function;
};

struct lookup {
	u64 place; /* the context at that time */
	u64 names; /* the number of names learnt at that time */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct lookup_key);
	__type(value, struct lookup);
} lookups SEC(".maps");

/* The number of kernel names learnt, in all processes. */
u64 names_learnt;

static __always_inline bool is_session_return(void *ctx)
{
	return bpf_ksym_exists(bpf_session_is_return) ? bpf_session_is_return(ctx) : bpf_session_is_return___before_7();
}

/* Whether the function finds the handle of the kernel in its second argument. */
static __always_inline bool looks_up(const struct function *function)
{
	return function->teaches && function->out == 1 && !function->text;
}

/* Called when a call that contains a kernel's name or handle has succeeded. */
static __always_inline void keep_lesson(const struct thread_calls *calls, const struct function *function,
					const struct call_record *call)
{
	struct lookup_key key = { .address = call->word[1], .image = call->image, .function = call->function };
	struct lookup lookup = { .place = calls->place, .names = *(volatile u64 *)&names_learnt };

	if (looks_up(function))
		bpf_map_update_elem(&lookups, &key, &lookup, BPF_ANY);
	else
		__sync_fetch_and_add(&names_learnt, 1);
}

static __always_inline bool is_known_lookup(struct pt_regs *ctx, const struct thread_calls *calls, u32 function)
{
	struct lookup_key key = { .address = PT_REGS_PARM2(ctx), .image = calls->image, .function = function };
	struct lookup *known = bpf_map_lookup_elem(&lookups, &key);

	return known && known->place == calls->place && known->names == *(volatile u64 *)&names_learnt;
}

/* Reads the shape of a launch at its entry; `stack` has the return address and two arguments. */
static __always_inline bool read_shape(struct pt_regs *ctx, const struct function *function, const u64 *stack,
				       struct launch_shape *shape)
{
	if (function->dims == DIMS_PAYLOAD && function->payload == 1)
		return !bpf_probe_read_user(shape, sizeof(*shape), (void *)PT_REGS_PARM1(ctx));
	if (function->dims_word != 1)
		return false;
	if (function->dims == DIMS_PACKED) {
		shape->grid[0] = PT_REGS_PARM2(ctx);
		shape->grid[1] = PT_REGS_PARM2(ctx) >> 32;
		shape->grid[2] = PT_REGS_PARM3(ctx);
		shape->block[0] = PT_REGS_PARM4(ctx);
		shape->block[1] = PT_REGS_PARM4(ctx) >> 32;
		shape->block[2] = PT_REGS_PARM5(ctx);
		shape->shared = stack[1];
		return true;
	}
	if (function->dims != DIMS_WORDS)
		return false;
	shape->grid[0] = PT_REGS_PARM2(ctx);
	shape->grid[1] = PT_REGS_PARM3(ctx);
	shape->grid[2] = PT_REGS_PARM4(ctx);
	shape->block[0] = PT_REGS_PARM5(ctx);
	shape->block[1] = ctx->r9;
	shape->block[2] = stack[1];
	shape->shared = stack[2];
	return true;
}

static __always_inline bool is_same_shape(const struct launch_shape *a, const struct launch_shape *b)
{
	return a->grid[0] == b->grid[0] && a->grid[1] == b->grid[1] && a->grid[2] == b->grid[2] &&
	       a->block[0] == b->block[0] && a->block[1] == b->block[1] && a->block[2] == b->block[2] &&
	       a->shared == b->shared;
}

/* Counts a call whose return is not watched, as long as the last one that was. Counters never decrease: they are exported. */
static __always_inline void count_skipped(const struct thread_calls *calls, u32 function, u32 flags)
{
	struct sum_key key = { .image = calls->image, .function = function, .flags = flags };
	struct sum *sum = find_or_make(&sums, &key, &empty_sum);
	u64 ns;

	if (!sum) {
		count_loss(LOSS_CALL_SUMS);
		return;
	}
	ns = sum->last;
	__sync_fetch_and_add(&sum->count, 1);
	__sync_fetch_and_add(&sum->ns, ns);
	__sync_fetch_and_add(&sum->buckets[bucket_of(ns) & (SUM_BUCKETS - 1)], 1);
}

/* Counts a launch like an earlier one of the same kernel; false if its return must be watched. */
static __always_inline bool count_repeated(struct pt_regs *ctx, const struct function *function, u32 index,
					   const struct thread_calls *calls, const u64 *stack)
{
	struct kernel_key key = { .image = calls->image, .handle = function->handle };
	u64 first = PT_REGS_PARM1(ctx), second = PT_REGS_PARM2(ctx);
	struct launch_shape shape = {};
	struct kernel_sum *sum;

	/* Keeps the compiler from choosing an address in `ctx`, which verifiers reject. */
	barrier_var(first);
	barrier_var(second);
	if (function->launches > 2 || !(bpf_get_prandom_u32() & (RETURN_SAMPLING - 1)))
		return false;
	key.address = function->launches == 1 ? first : second;
	sum = bpf_map_lookup_elem(&kernels, &key);
	if (!sum || !read_shape(ctx, function, stack, &shape) || !is_same_shape(&sum->shape, &shape))
		return false;
	__sync_fetch_and_add(&sum->count, 1);
	count_skipped(calls, index, 0);
	return true;
}

/*
 * Whether the return of this call need not be watched; it has been counted then. `before` and `after` are the sizes of
 * the code around the probe, if the function is the runtime's.
 */
static __always_inline bool skip_return(struct pt_regs *ctx, const struct function *function, u32 index,
					struct thread_calls *calls, u32 before, u32 after)
{
	u64 stack[3] = {};

	if (looks_up(function)) {
		if (!is_known_lookup(ctx, calls, index))
			return false;
		count_skipped(calls, index, 0);
		return true;
	}
	if (!function->launches || bpf_probe_read_user(stack, sizeof(stack), (void *)PT_REGS_SP(ctx)))
		return false;
	if (stack[0] - calls->runtime < calls->runtime_bytes) {
		count_skipped(calls, index, SUM_NESTED);
		return true;
	}
	if (after) {
		calls->runtime = PT_REGS_IP(ctx) - before;
		calls->runtime_bytes = (u64)before + after;
	}
	return count_repeated(ctx, function, index, calls, stack);
}

#endif
