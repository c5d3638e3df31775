/* SPDX-License-Identifier: MIT */
/*
 * The user part of a stack, walked by the rules of .eh_frame (crates/unwind/src/walk.h) with tables that the reader
 * compiles and keeps in these maps.
 */
#ifndef WARPSCOPE_WALK_BPF_H
#define WARPSCOPE_WALK_BPF_H

#include "events.h"
#include "walk_types.h"

/* Rows of many files, several to a shard; a large file has a shard of its own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 256);
	__type(key, u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 1);
		__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
		__uint(key_size, sizeof(u32));
		__uint(value_size, sizeof(struct unwind_row));
	});
} row_shards SEC(".maps");

/* Mappings of all images, written by the reader; `mapping_ranges` tells which part is whose. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 128 * 1024);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct mapping);
} mappings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct range);
} mapping_ranges SEC(".maps");

/* A forked child has the mappings of its parent from its first instruction on. */
static __always_inline void inherit_mappings(u32 parent, u32 child)
{
	struct range *range = bpf_map_lookup_elem(&mapping_ranges, &parent);
	struct range copy;

	if (!range)
		return;
	copy = *range;
	bpf_map_update_elem(&mapping_ranges, &child, &copy, BPF_ANY);
}

struct registers {
	u64 ip;
	u64 sp;
	u64 bp;
};

/* A walk in progress. */
struct walker {
	struct walk_state state;
	struct stack_record *out;
	struct range range;
	u32 kernel_frames;
	u32 depth;
	u32 result;
	/* An address on the way lies in a mapping that the reader has not told of yet. */
	u32 unready;
};

#define WALK_CONTEXT struct walker
#define WALK_READ(dst, address) bpf_probe_read_user(dst, 8, (const void *)(address))
/* Binary search over the mappings of one image. */
#define MAPPING_STEPS 14

static __always_inline int walk_find(struct walker *walker, u64 address, struct walk_table *table)
{
	u32 low = walker->range.first, high = low + walker->range.count;
	struct mapping found = {};

	for (int step = 0; step < MAPPING_STEPS; step++) {
		struct mapping *mapping;
		u32 middle;

		if (low >= high)
			break;
		middle = low + ((high - low) >> 1);
		mapping = bpf_map_lookup_elem(&mappings, &middle);
		if (!mapping)
			break;
		if (mapping->start <= address) {
			found = *mapping;
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	if (address >= found.end || found.shard == SHARD_PENDING) {
		walker->unready = 1;
		return 1;
	}
	if (found.shard == SHARD_NONE || address < found.base)
		return 0;
	table->pc = address - found.base;
	table->shard = found.shard;
	table->first = found.first;
	table->count = found.count;
	return 0;
}

static __always_inline const struct unwind_row *walk_row(struct walker *walker, const struct walk_table *table, u32 index)
{
	u32 shard = table->shard, row = table->first + index;
	void *rows = bpf_map_lookup_elem(&row_shards, &shard);

	(void)walker;
	return rows ? bpf_map_lookup_elem(rows, &row) : 0;
}

#include "walk.h"

static long walk_one(u32 index, struct walker *walker)
{
	u32 place = walker->kernel_frames + index;

	if (place >= MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
		return 1;
	walker->out->frames[place] = walk_pc(&walker->state);
	walker->depth = index + 1;
	walker->result = walk_step(walker, &walker->state);
	return walker->result != WALK_MORE;
}

#endif
