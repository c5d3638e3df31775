/* SPDX-License-Identifier: MIT */
/* Sums of calls, kept in the kernel: counts, times, bytes, errors by code, and what memory is live. */
#ifndef WARPSCOPE_SUMS_H
#define WARPSCOPE_SUMS_H

#include "events.h"

/* cudaErrorNotReady and CUDA_ERROR_NOT_READY: an answer, not an error. */
#define STATUS_NOT_READY 600

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

/* Bytes by address, of what was allocated and not yet freed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct allocation_key);
	__type(value, u64);
} allocations SEC(".maps");

const struct sum empty_sum = {};

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
	struct error_key key = { .image = call->image, .function = call->function, .code = (u32)call->result };
	u64 one = 1, *count = bpf_map_lookup_elem(&errors, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&errors, &key, &one, BPF_NOEXIST))
		count_loss(LOSS_CALL_SUMS);
}

/* Other threads of this CPU may be at the same sum, hence atomic; other CPUs have their own, hence cheap. */
static __always_inline void add_to_sums(const struct function *function, const struct call_record *call, u64 bytes,
					u32 class)
{
	struct sum_key key = {
		.image = call->image,
		.function = call->function,
		.class = class,
		.nested = call->flags & CALL_NESTED,
	};
	struct sum *sum = bpf_map_lookup_elem(&sums, &key);
	u64 ns = call->end - call->start;

	if (!sum) {
		bpf_map_update_elem(&sums, &key, &empty_sum, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&sums, &key);
		if (!sum) {
			count_loss(LOSS_CALL_SUMS);
			return;
		}
	}
	__sync_fetch_and_add(&sum->count, 1);
	__sync_fetch_and_add(&sum->ns, ns);
	__sync_fetch_and_add(&sum->buckets[bucket_of(ns) & (SUM_BUCKETS - 1)], 1);
	if (ns > sum->max)
		sum->max = ns;
	if (is_error(function, call->result)) {
		__sync_fetch_and_add(&sum->errors, 1);
		count_error(call);
	} else {
		__sync_fetch_and_add(&sum->bytes, bytes);
	}
}

static __always_inline void account_memory(const struct function *function, const struct call_record *call, u64 bytes)
{
	struct allocation_key key = { .image = call->image };

	if (call->flags & CALL_NESTED || is_error(function, call->result))
		return;
	if (function->memory == MEMORY_ALLOC && call->flags & CALL_HAS_OUT) {
		key.address = call->out;
		if (bpf_map_update_elem(&allocations, &key, &bytes, BPF_ANY))
			count_loss(LOSS_CALL_SUMS);
	} else if (function->memory == MEMORY_FREE) {
		key.address = call->word[0];
		bpf_map_delete_elem(&allocations, &key);
	}
}

#endif
