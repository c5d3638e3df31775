/* SPDX-License-Identifier: MIT */
/*
 * Sums of calls, kept in the kernel: counts, times, bytes, and errors by code.
 *
 * The daemon shares the sums between CPUs: with 192 CPUs, a set for each would be 192 times as large, and would be
 * read at each scrape. A trace has one set per CPU. Buckets are 64 bits wide; 32 bits would overflow within a day. A
 * nested call with the role of the call around it counts as a call, but not as memory, copy or launch. An error is
 * counted for the outermost call that returns a status.
 */
#ifndef WARPSCOPE_SUMS_H
#define WARPSCOPE_SUMS_H

#include "open_calls.h"

/* cudaErrorNotReady and CUDA_ERROR_NOT_READY: a normal result, not an error. */
#define STATUS_NOT_READY 600

/* Per CPU or shared by all CPUs: set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct sum_key);
	__type(value, struct sum);
} sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct error_key);
	__type(value, u64);
} errors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct kernel_key);
	__type(value, struct kernel_sum);
} kernels SEC(".maps");

/* Launches of kernels that did not fit, by process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u64);
} kernels_beyond SEC(".maps");

const struct sum empty_sum = {};
const struct kernel_sum empty_kernel = {};
const u64 nothing_yet = 0;

/* The value under a key, created if missing; null if there is no room. */
#define find_or_make(map, key, empty)                                         \
	({                                                                    \
		void *value_ = bpf_map_lookup_elem(map, key);                 \
		if (!value_) {                                                \
			bpf_map_update_elem(map, key, empty, BPF_NOEXIST);    \
			value_ = bpf_map_lookup_elem(map, key);               \
		}                                                             \
		value_;                                                       \
	})

/* The most attempts to raise a maximum while other CPUs raise it. */
#define MOST_RAISES 32

static __always_inline void raise_to(u64 *maximum, u64 value)
{
	for (u32 i = 0; i < MOST_RAISES; i++) {
		u64 before = *(volatile u64 *)maximum;

		if (value <= before || __sync_val_compare_and_swap(maximum, before, value) == before)
			break;
	}
}

static __always_inline u32 log2_of(u64 value)
{
	u32 log = 0;

#pragma unroll
	for (u32 step = 32; step; step /= 2) {
		if (value >> step) {
			value >>= step;
			log += step;
		}
	}
	return log;
}

static __always_inline u32 bucket_of(u64 ns)
{
	u64 steps = ns >> 4;
	u32 log, bucket;

	if (steps < 4)
		return steps;
	log = log2_of(steps);
	bucket = 4 * (log - 1) + ((steps >> (log - 2)) & 3);
	return bucket < SUM_BUCKETS ? bucket : SUM_BUCKETS - 1;
}

static __always_inline bool is_error(const struct function *function, u64 result)
{
	u32 code = result;

	return function->status && code && code != STATUS_NOT_READY;
}

static __always_inline void count_error(const struct call_record *call)
{
	struct error_key key = {
		.image = call->image,
		.function = call->function,
		.code = (u32)call->result,
		.enclosed = call->flags & CALL_ENCLOSED,
	};
	u64 *count = find_or_make(&errors, &key, &nothing_yet);

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		count_loss(LOSS_CALL_SUMS);
}

/* Atomic, because other threads on this CPU may update the same sum; cheap if the sums are per CPU. */
static __always_inline void add_to_sums(const struct function *function, const struct open_call *open, u64 bytes,
					u32 class)
{
	const struct call_record *call = &open->record;
	struct sum_key key = {
		.image = call->image,
		.function = call->function,
		.class = class,
		.flags = (call->flags & SUM_NESTED) | (is_error(function, call->result) ? SUM_FAILED : 0),
	};
	struct sum *sum = find_or_make(&sums, &key, &empty_sum);
	u64 ns = call->end - call->start;

	if (!sum) {
		count_loss(LOSS_CALL_SUMS);
		return;
	}
	sum->last = ns;
	__sync_fetch_and_add(&sum->count, 1);
	__sync_fetch_and_add(&sum->ns, ns);
	__sync_fetch_and_add(&sum->self_ns, ns - open->inside);
	if (!(open->layers & open->layer))
		__sync_fetch_and_add(&sum->outer, ns);
	__sync_fetch_and_add(&sum->buckets[bucket_of(ns) & (SUM_BUCKETS - 1)], 1);
	raise_to(&sum->max, ns);
	raise_to(&sum->inverse_min, ~ns);
	if (is_error(function, call->result)) {
		__sync_fetch_and_add(&sum->errors, 1);
		count_error(call);
	} else if (function->bytes_a) {
		__sync_fetch_and_add(&sum->bytes, bytes);
		__sync_fetch_and_add(&sum->sizes[(bytes ? log2_of(bytes) + 1 : 0) & (SUM_SIZES - 1)], 1);
	}
}

/* Keeps the shape of a launch, from its arguments. */
static __always_inline void keep_shape(const struct function *function, const struct call_record *call,
				       struct launch_shape *shape)
{
	u32 dims = function->dims_word;

	if (function->dims == DIMS_PACKED && dims + 6 <= CALL_WORDS) {
		shape->grid[0] = call->word[dims];
		shape->grid[1] = call->word[dims] >> 32;
		shape->grid[2] = call->word[dims + 1];
		shape->block[0] = call->word[dims + 2];
		shape->block[1] = call->word[dims + 2] >> 32;
		shape->block[2] = call->word[dims + 3];
		/* After the pointer to the arguments. */
		shape->shared = call->word[dims + 5];
	} else if (function->dims == DIMS_WORDS && dims + 7 <= CALL_WORDS) {
		shape->grid[0] = call->word[dims];
		shape->grid[1] = call->word[dims + 1];
		shape->grid[2] = call->word[dims + 2];
		shape->block[0] = call->word[dims + 3];
		shape->block[1] = call->word[dims + 4];
		shape->block[2] = call->word[dims + 5];
		shape->shared = call->word[dims + 6];
	} else if (function->dims == DIMS_PAYLOAD && call->flags & CALL_HAS_PAYLOAD) {
		__builtin_memcpy(shape, call->bytes, sizeof(*shape));
	}
}

/* Adds launches of a kernel; returns its sum, or null if there is no room. */
static __always_inline struct kernel_sum *add_launches(struct kernel_key *key, u64 count)
{
	struct kernel_sum *sum = find_or_make(&kernels, key, &empty_kernel);
	u64 *beyond;

	if (sum) {
		__sync_fetch_and_add(&sum->count, count);
		return sum;
	}
	beyond = find_or_make(&kernels_beyond, &key->image, &nothing_yet);
	if (beyond)
		__sync_fetch_and_add(beyond, count);
	else
		count_loss(LOSS_CALL_SUMS);
	return 0;
}

static __always_inline void count_kernel(const struct function *function, const struct call_record *call)
{
	u32 word = function->launches - 1;
	struct kernel_key key = { .image = call->image, .handle = function->handle };
	struct kernel_sum *sum;

	if (call->flags & CALL_NESTED || is_error(function, call->result) || word >= CALL_WORDS)
		return;
	key.address = call->word[word];
	sum = add_launches(&key, 1);
	if (sum)
		keep_shape(function, call, &sum->shape);
}

#endif
