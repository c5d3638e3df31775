/* SPDX-License-Identifier: MIT */
/*
 * The user part of a stack, walked with the .eh_frame rules (crates/unwind/src/walk.h) and tables that the reader
 * compiles and stores in these maps.
 *
 * - Each mapping has a generation, and the walker's caches (rows, complete walks) are valid for one generation: a walk
 *   that was truncated because a mapping arrived late is discarded when the mapping arrives.
 * - A forked child has its parent's mappings from its first instruction: the fork probe copies the entry.
 * - During an exec, and at process exit, the stack pointer does not point into the current memory of the process, or
 *   there is none: such samples have no user frames. What `record` itself does between fork and exec is not sampled.
 */
#ifndef WARPSCOPE_WALK_BPF_H
#define WARPSCOPE_WALK_BPF_H

#include "memo.h"
#include "walk_types.h"

/* Rows of many files, several per shard; a large file has a separate shard. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_SHARDS);
	__type(key, u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 1);
		__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
		__uint(key_size, sizeof(u32));
		__uint(value_size, sizeof(struct unwind_row));
	});
} row_shards SEC(".maps");

/* Mappings of all images, written by the reader; `mapping_ranges` has the range of each image. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_MAPPINGS);
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
	copy.full = 0;
	bpf_map_update_elem(&mapping_ranges, &child, &copy, BPF_ANY);
}

/*
 * A walk in progress, and its resulting stack. It is in a map, not on the BPF stack, where the verifier would track the
 * values of every step.
 */
struct scratch {
	struct walk_state state;
	struct range range;
	u64 owner; /* of cached rows and memos: image and generation */
	u64 hash; /* of the frames so far */
	u64 sp; /* where the walk began */
	u64 time;
	u64 pid_tgid;
	u32 span; /* words from there to the last one read */
	u32 kernel_frames;
	u32 depth;
	u32 result;
	/* An address on the stack is in a mapping or a function that the reader has not published yet. */
	u32 unready;
	u32 checked; /* the task may be in the middle of an exec, or exiting */
	u32 remembered; /* the words of this walk determine the stack: no table was missing */
	struct registers registers; /* the initial registers */
	struct stack_record record;
};

/* State shared by the steps of a walk. */
struct walker {
	struct scratch *scratch;
	struct memo *memo; /* records the words that are read; may be null */
	struct deep_memo_record *deep; /* the same for deep stacks; null if the thread has none, or there is no memo */
};

/*
 * Rows by address, so that a known frame costs one lookup instead of two searches. Entries are overwritten without
 * locks; an entry torn by two writers fails its check and counts as missing.
 */
struct cached_row {
	u64 address;
	u64 owner; /* image and generation */
	u64 check;
	struct unwind_row row;
};

#define ROW_CACHE 65536

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ROW_CACHE);
	__type(key, u32);
	__type(value, struct cached_row);
} row_cache SEC(".maps");

static __always_inline u64 row_check(u64 address, u64 owner, const struct unwind_row *row)
{
	u64 bits = (u64)row->pc << 32 | (u64)(u16)row->cfa_offset << 16 | row->rule;

	return mix(mix(address, owner), bits);
}

static __always_inline struct cached_row *cache_entry(u64 address, u64 owner)
{
	u32 index = mix(address, owner) & (ROW_CACHE - 1);

	return bpf_map_lookup_elem(&row_cache, &index);
}

static __always_inline int recall_row(u64 owner, u64 address, struct unwind_row *row)
{
	struct cached_row *entry = cache_entry(address, owner);

	if (!entry || entry->address != address || entry->owner != owner)
		return 1;
	*row = entry->row;
	return entry->check != row_check(address, owner, row);
}

static __always_inline void remember_row(u64 owner, u64 address, const struct unwind_row *row)
{
	struct cached_row *entry = cache_entry(address, owner);

	if (!entry)
		return;
	entry->check = 0;
	entry->row = *row;
	entry->address = address;
	entry->owner = owner;
	entry->check = row_check(address, owner, row);
}

__noinline int look_up_row(struct scratch *scratch, u64 address, struct unwind_row *row);

#define WALK_CONTEXT struct walker
#define WALK_RECALL(walker, address, row) recall_row((walker)->scratch->owner, address, row)
#define WALK_REMEMBER(walker, address, row) remember_row((walker)->scratch->owner, address, row)
#define WALK_LOOK_UP(walker, address, row) look_up_row((walker)->scratch, address, row)
#define WALK_UNKNOWN(walker) ((walker)->scratch->unready = 1)
#define WALK_READ(walker, dst, address) walk_read(walker, dst, address)
#define WALK_RETURN(walker, state, slot, ip) walk_return(walker, slot, ip)
#define WALK_REGISTER(walker, number, value) (*(value) = (walker)->scratch->registers.general[(number) & 15], 0)

/* Records a word that the walk has read. A separate function for the verifier. */
__noinline int note_read(struct memo *memo, struct deep_memo_record *deep, struct scratch *scratch, u64 address, u64 word)
{
	if (memo && scratch)
		note_word(memo, deep, scratch->sp, &scratch->span, address, word);
	return 0;
}

static __always_inline int walk_read(struct walker *walker, u64 *word, u64 address)
{
	if (bpf_probe_read_user(word, sizeof(*word), (const void *)address)) {
		if (walker->memo)
			spoil_memo(walker->memo, walker->deep);
		return 1;
	}
	if (walker->memo)
		note_read(walker->memo, walker->deep, walker->scratch, address, *word);
	return 0;
}

static __always_inline void walk_return(struct walker *walker, u64 slot, u64 *ip)
{
	u64 real;

	if (!is_return_trap(*ip))
		return;
	real = real_return(slot);
	if (real)
		*ip = real;
	if (walker->memo)
		note_return(walker->memo, walker->deep, slot, real);
}

static __always_inline int walk_find(struct walker *walker, u64 address, struct walk_table *table)
{
	u32 low = walker->scratch->range.first, high = low + walker->scratch->range.count;
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
		walker->scratch->unready = 1;
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

/* These two files depend on each other: walk.h calls the functions above, and the code below calls walk.h. */
#include "walk.h"

/* A separate function: otherwise the verifier explores the searches together with every path of a step. */
__noinline int look_up_row(struct scratch *scratch, u64 address, struct unwind_row *row)
{
	struct walker walker = { .scratch = scratch };

	if (!scratch || !row)
		return 1;
	return walk_look_up(&walker, address, row);
}

static long walk_one(u32 index, struct walker *walker)
{
	struct scratch *scratch = walker->scratch;
	u32 place = scratch->kernel_frames + index;
	u64 address = walk_pc(&scratch->state);

	if (place >= MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
		return 1;
	scratch->record.frames[place] = address;
	scratch->hash = mix(scratch->hash, address);
	scratch->depth = index + 1;
	scratch->result = walk_step(walker, &scratch->state);
	return scratch->result != WALK_MORE;
}

#endif
