/* SPDX-License-Identifier: MIT */
/*
 * Calls that repeat an earlier one: launches of a kernel with the same dimensions, and lookups of the same handle. Their
 * returns are mostly of no interest, and each costs a trap, so session probes decide at the entry whether to watch it.
 *
 * - Every launch is counted. One repeated launch in RETURN_SAMPLING, chosen at random, is watched to its end: its duration
 *   stands for those that follow. A launch with other dimensions than the last one is always watched, so an error
 *   of its configuration is seen.
 * - A lookup is skipped until something that can change its result happens: a new name, or another context.
 * - A thread counts the launches that it repeats by itself, and adds them to the sums when they are read, or when it needs
 *   the room for others.
 * - While the return of a runtime function is not watched, the driver's launch within it is recognised by its caller: code
 *   of the runtime.
 * - An error that does not depend on the configuration, such as the one that every call returns after a kernel has
 *   crashed, is seen at every sixteenth launch and at all other calls. Each launch after a failure is watched.
 * - cuKernelGetFunction, which cuBLAS calls before each launch, is watched once for each kernel and context, and again
 *   after any new name.
 * - A thread keeps 64 kernels at a time, so that it touches few cache lines. An iterator over all threads adds its
 *   counts before the sums are read. Each count shares a word with the number of times that its slot was replaced, so
 *   that a concurrent reader never attributes it to another kernel.
 * - If the runtime is linked into a program, the driver's launch within it cannot be recognised, and all returns are
 *   watched.
 *
 * Session probes need Linux 6.13. On other kernels, and in traces, every return is watched. A launch-bound PyTorch
 * step has 150 such calls.
 */
#ifndef WARPSCOPE_REPEATED_H
#define WARPSCOPE_REPEATED_H

#include "sums.h"

#define RETURN_SAMPLING 16

/* Set before loading: most returns of repeated calls are not watched. */
const volatile bool skip_returns = false;

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
	return function->names_kernels && function->out == 1 && !function->text;
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

/* The return address of a call, and the words of its arguments. */
struct entry {
	u64 words[6];
	u64 stack[3];
};

static __always_inline bool read_entry(struct pt_regs *ctx, struct entry *entry)
{
	entry->words[0] = PT_REGS_PARM1(ctx);
	entry->words[1] = PT_REGS_PARM2(ctx);
	entry->words[2] = PT_REGS_PARM3(ctx);
	entry->words[3] = PT_REGS_PARM4(ctx);
	entry->words[4] = PT_REGS_PARM5(ctx);
	entry->words[5] = ctx->r9;
	/* Keeps the compiler from choosing addresses in `ctx` later, which verifiers reject. */
	barrier();
	return !bpf_probe_read_user(entry->stack, sizeof(entry->stack), (void *)PT_REGS_SP(ctx));
}

/* Reads the shape of a launch at its entry. */
static __always_inline bool read_shape(const struct function *function, const struct entry *entry,
				       struct launch_shape *shape)
{
	if (function->dims == DIMS_PAYLOAD && function->payload == 1)
		return !bpf_probe_read_user(shape, sizeof(*shape), (void *)entry->words[0]);
	if (function->dims_word != 1)
		return false;
	if (function->dims == DIMS_PACKED) {
		shape->grid[0] = entry->words[1];
		shape->grid[1] = entry->words[1] >> 32;
		shape->grid[2] = entry->words[2];
		shape->block[0] = entry->words[3];
		shape->block[1] = entry->words[3] >> 32;
		shape->block[2] = entry->words[4];
		shape->shared = entry->stack[1];
		return true;
	}
	if (function->dims != DIMS_WORDS)
		return false;
	shape->grid[0] = entry->words[1];
	shape->grid[1] = entry->words[2];
	shape->grid[2] = entry->words[3];
	shape->block[0] = entry->words[4];
	shape->block[1] = entry->words[5];
	shape->block[2] = entry->stack[1];
	shape->shared = entry->stack[2];
	return true;
}

static __always_inline bool is_same_shape(const struct launch_shape *a, const struct launch_shape *b)
{
	return a->grid[0] == b->grid[0] && a->grid[1] == b->grid[1] && a->grid[2] == b->grid[2] &&
	       a->block[0] == b->block[0] && a->block[1] == b->block[1] && a->block[2] == b->block[2] &&
	       a->shared == b->shared;
}

/* Adds calls whose returns were not watched, as long as the last one that was. Counters never decrease: they are exported. */
static __always_inline void add_skipped(const struct thread_calls *calls, u32 function, u32 flags, u64 count)
{
	struct sum_key key = { .image = calls->image, .function = function, .flags = flags };
	struct sum *sum = find_or_make(&sums, &key, &empty_sum);
	u64 ns;

	if (!sum) {
		count_loss(LOSS_CALL_SUMS);
		return;
	}
	ns = sum->last;
	__sync_fetch_and_add(&sum->count, count);
	__sync_fetch_and_add(&sum->ns, ns * count);
	__sync_fetch_and_add(&sum->buckets[bucket_of(ns) & (SUM_BUCKETS - 1)], count);
}

/* Adds what was counted in a slot of the thread, taken from it as `count`. */
static __always_inline void add_seen(const struct thread_calls *calls, const struct seen_launch *seen, u64 count)
{
	struct kernel_key key = { .address = seen->kernel, .image = calls->image, .handle = seen->handle };

	if (!count)
		return;
	add_skipped(calls, seen->function, seen->kernel ? 0 : SUM_NESTED, count);
	if (seen->kernel)
		add_launches(&key, count);
}

static long add_slot(u32 index, struct thread_calls **calls)
{
	struct seen_launch *seen = &(*calls)->seen[index & (SEEN_LAUNCHES - 1)], copy;
	u64 before = *(volatile u64 *)&seen->count;

	copy = *seen;
	barrier();
	/* If the thread has replaced or counted it meanwhile, it remains for the next time. */
	if ((u32)before && __sync_val_compare_and_swap(&seen->count, before, before >> 32 << 32) == before)
		add_seen(*calls, &copy, (u32)before);
	return 0;
}

/* Adds everything that the thread has counted. */
static __always_inline void add_all_seen(struct thread_calls *calls)
{
	if (skip_returns && calls->image)
		bpf_loop(SEEN_LAUNCHES, add_slot, &calls, 0);
}

/* The slot for a launch of a kernel, or for nested launches of a function. */
static __always_inline struct seen_launch *slot_of(struct thread_calls *calls, u64 kernel, u32 function)
{
	return &calls->seen[((kernel + function) * 0x9e3779b97f4a7c15ull >> 58) & (SEEN_LAUNCHES - 1)];
}

/* Replaces the launch in a slot, and counts one of the new ones. */
static __always_inline void replace_seen(struct thread_calls *calls, struct seen_launch *seen, u64 kernel, u32 function,
					 u32 handle, const struct launch_shape *shape)
{
	u64 before = __sync_lock_test_and_set(&seen->count, ((*(volatile u64 *)&seen->count >> 32) + 1) << 32);

	add_seen(calls, seen, (u32)before);
	seen->kernel = kernel;
	seen->function = function;
	seen->handle = handle;
	seen->shape = *shape;
	barrier();
	__sync_fetch_and_add(&seen->count, 1);
}

/* Counts a launch like an earlier one of the same kernel; false if its return must be watched. */
static __always_inline bool count_repeated(const struct function *function, u32 index, struct thread_calls *calls,
					   const struct entry *entry)
{
	struct kernel_key key = { .image = calls->image, .handle = function->handle };
	struct launch_shape shape = {};
	struct seen_launch *seen;
	struct kernel_sum *sum;

	if (function->launches > 2 || !(bpf_get_prandom_u32() & (RETURN_SAMPLING - 1)) ||
	    !read_shape(function, entry, &shape))
		return false;
	key.address = function->launches == 1 ? entry->words[0] : entry->words[1];
	seen = slot_of(calls, key.address, index);
	if (seen->kernel == key.address && seen->function == index && is_same_shape(&seen->shape, &shape)) {
		__sync_fetch_and_add(&seen->count, 1);
		return true;
	}
	sum = bpf_map_lookup_elem(&kernels, &key);
	if (!key.address || !sum || !is_same_shape(&sum->shape, &shape))
		return false;
	replace_seen(calls, seen, key.address, index, function->handle, &shape);
	return true;
}

/* Counts a launch nested in one whose return is not watched. */
static __always_inline void count_nested(const struct function *function, u32 index, struct thread_calls *calls)
{
	const struct launch_shape none = {};
	struct seen_launch *seen = slot_of(calls, 0, index);

	if (!seen->kernel && seen->function == index && (u32)seen->count)
		__sync_fetch_and_add(&seen->count, 1);
	else
		replace_seen(calls, seen, 0, index, function->handle, &none);
}

/*
 * Whether the return of this call need not be watched; it has been counted then. `before` and `after` are the sizes of
 * the code around the probe, if the function is the runtime's.
 */
static __always_inline bool skip_return(struct pt_regs *ctx, const struct function *function, u32 index,
					struct thread_calls *calls, u32 before, u32 after)
{
	struct entry entry = {};

	if (looks_up(function)) {
		if (!is_known_lookup(ctx, calls, index))
			return false;
		add_skipped(calls, index, 0, 1);
		return true;
	}
	if (!function->launches || !read_entry(ctx, &entry))
		return false;
	if (entry.stack[0] - calls->runtime < calls->runtime_bytes) {
		count_nested(function, index, calls);
		return true;
	}
	if (after) {
		calls->runtime = PT_REGS_IP(ctx) - before;
		calls->runtime_bytes = (u64)before + after;
	}
	return count_repeated(function, index, calls, &entry);
}

#endif
