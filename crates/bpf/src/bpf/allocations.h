/* SPDX-License-Identifier: MIT */
/*
 * Live allocations: by address, summed by process and by call stack, with a share of the room for each user.
 *
 * A process may use a quarter of the map, and a user one half. What is beyond that is counted (untracked).
 */
#ifndef WARPSCOPE_ALLOCATIONS_H
#define WARPSCOPE_ALLOCATIONS_H

#include "open_calls.h"
#include "sums.h"

/* Set before loading: the most entries in `allocations` of one process, and of one user. */
const volatile u32 process_share = 0xffffffff;
const volatile u64 user_share = ~0ull;

/* Allocations not yet freed, by address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct allocation_key);
	__type(value, struct allocation);
} allocations SEC(".maps");

/* The number of allocations of each user. The reader subtracts those that it deletes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, USERS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, u64);
} held_by_user SEC(".maps");

/* Allocations summed by call stack. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct site_key);
	__type(value, struct site);
} sites SEC(".maps");

/* Allocations summed by process and space, with totals of allocations and frees. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct memory_key);
	__type(value, struct memory_sum);
} memory_sums SEC(".maps");

const struct site empty_site = {};
const struct memory_sum empty_memory = {};

static __always_inline struct memory_sum *memory_of(u32 image, u32 space)
{
	struct memory_key key = { .image = image, .space = space };
	struct memory_sum *sum = find_or_make(&memory_sums, &key, &empty_memory);

	if (!sum)
		count_loss(LOSS_CALL_SUMS);
	return sum;
}

static __always_inline void add_to_site(const struct site_key *key, s64 bytes, s64 count, u64 since)
{
	struct site *site = find_or_make(&sites, key, &empty_site);

	if (!site) {
		count_loss(LOSS_CALL_SUMS);
		return;
	}
	/* The site was empty before. */
	if (!__sync_fetch_and_add(&site->count, count))
		site->since = since;
	__sync_fetch_and_add(&site->bytes, bytes);
}

/* The image of the current process, if it is still the one that made the call. */
static __always_inline struct image *image_of_call(const struct call_record *call)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct image *image = bpf_map_lookup_elem(&images, &pid);

	return image && image->id == call->image ? image : 0;
}

/* Adds an allocation to the shares of its process and user; false if a share is used up. */
static __always_inline bool take_share(struct image *image, u32 user)
{
	u64 *held = bpf_map_lookup_elem(&held_by_user, &user);

	if (!held || !image || image->held >= process_share || *held >= user_share)
		return false;
	__sync_fetch_and_add(&image->held, 1);
	__sync_fetch_and_add(held, 1);
	return true;
}

static __always_inline void give_share_back(struct image *image, u32 user)
{
	u64 *held = bpf_map_lookup_elem(&held_by_user, &user);

	if (image)
		__sync_fetch_and_add(&image->held, -1);
	if (held)
		__sync_fetch_and_add(held, -1);
}

/* Adds a live allocation. */
static __always_inline void add_live(const struct allocation *allocation, struct memory_sum *sum)
{
	u64 live;

	__sync_fetch_and_add(&sum->live, 1);
	live = __sync_fetch_and_add(&sum->live_bytes, allocation->bytes) + allocation->bytes;
	raise_to((u64 *)&sum->peak_bytes, live);
	add_to_site(&allocation->site, allocation->bytes, 1, allocation->time);
}

/* Removes an allocation that was deleted from the map from the sums; returns its sum. */
static __noinline struct memory_sum *remove_live(const struct allocation *allocation, struct image *image)
{
	struct memory_key key = { .image = allocation->site.image, .space = allocation->space };
	struct memory_sum *sum = bpf_map_lookup_elem(&memory_sums, &key);

	give_share_back(image, allocation->user);
	add_to_site(&allocation->site, -allocation->bytes, -1, allocation->time);
	if (sum) {
		__sync_fetch_and_add(&sum->live, -1);
		__sync_fetch_and_add(&sum->live_bytes, -allocation->bytes);
	}
	return sum;
}

#endif
