/* SPDX-License-Identifier: MIT */
/*
 * Stacks: gathered into a caller's scratch memory, hashed, and sent once for each distinct one.
 *
 * A stack's id is a 64-bit hash of its image and frames. The set of ids already sent is an LRU map: an evicted stack is
 * sent again, which costs little and changes nothing.
 *
 * So no id has to be allocated, and two CPUs that see the same stack at once use the same id without synchronisation.
 * Among a million distinct stacks, the probability that two have one id is below 1 in 10 million.
 *
 * If a walk meets a mapping without a table, 8, 32 or 128 KiB of the stack are copied, and the reader walks them by
 * the same rules. There are no frames to hash yet, so such a stack gets a unique id. Copies have their own ring
 * buffer, so that a burst of them cannot displace the launches they belong to; if it is full, the stack ends where the
 * walk ended, and is marked accordingly. Each image may send a few thousand copies.
 */
#ifndef WARPSCOPE_STACK_H
#define WARPSCOPE_STACK_H

#include "walk.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u8);
} stacks_sent SEC(".maps");

/*
 * Raw stacks have a separate ring: many of them at once, at the start of a program, must not displace the launches that
 * they belong to.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024); /* resized before loading */
} raw_stacks SEC(".maps");

static __always_inline u32 take_kernel_part(void *ctx, u64 *frames, u64 *hash)
{
	long bytes = bpf_get_stack(ctx, frames, 8 * MAX_KERNEL_FRAMES, 0);
	u32 count = bytes > 0 ? (u64)bytes / 8 : 0;

	if (count > MAX_KERNEL_FRAMES)
		count = MAX_KERNEL_FRAMES;
	/* All but the innermost are return addresses: minus one, they are in the calling instruction. */
	for (u32 i = 0; i < MAX_KERNEL_FRAMES; i++) {
		if (i >= count)
			break;
		if (i)
			frames[i]--;
		*hash = mix(*hash, frames[i]);
	}
	return count;
}

/*
 * Sends the stack's memory for the reader to walk. Such a stack has a unique id and is not compared with others. 0 if
 * there is no room: the stack then ends where the walk did, with the reason.
 */
static __always_inline u64 send_pages(struct scratch *scratch, const struct registers *regs, u32 image, u64 pid_tgid,
				      u64 time, const u32 pages)
{
	struct raw_stack_record *raw = bpf_ringbuf_reserve(&raw_stacks, sizeof(*raw) + pages * RAW_PAGE, 0);
	u64 id, sp = regs->general[REGISTER_RSP], page = sp & ~(u64)(RAW_PAGE - 1);

	if (!raw)
		return 0;
	id = mix(mix(mix(image, pid_tgid), time), sp) | 1;
	raw->type = RECORD_RAW_STACK;
	raw->image = image;
	raw->id = id;
	raw->time = time;
	raw->pid = pid_tgid >> 32;
	raw->registers = *regs;
	raw->kernel_frames = scratch->kernel_frames;
	raw->pages = 0;
	bpf_probe_read_kernel(raw->kernel, sizeof(raw->kernel), scratch->record.frames);
#pragma unroll
	for (u32 i = 0; i < pages; i++) {
		if (bpf_probe_read_user(raw->bytes + i * RAW_PAGE, RAW_PAGE, (void *)(page + i * RAW_PAGE)))
			break;
		raw->pages = i + 1;
	}
	restore_returns(raw->bytes, pages * RAW_PAGE, page);
	/* Wakes the reader: the sooner it provides the tables, the fewer raw stacks there are. */
	bpf_ringbuf_submit(raw, 0);
	return id;
}

/* Whether the stack continues beyond this many pages, as far as can be seen. */
static __always_inline bool has_page(const struct registers *regs, u64 pages)
{
	u64 beyond = (regs->general[REGISTER_RSP] & ~(u64)(RAW_PAGE - 1)) + pages * RAW_PAGE, word;

	return !bpf_probe_read_user(&word, sizeof(word), (void *)beyond);
}

/* Whether there is room for large copies. The rest of the ring is for small ones: a short stack is better than none. */
static __always_inline bool raw_ring_is_roomy(void)
{
	return bpf_ringbuf_query(&raw_stacks, BPF_RB_AVAIL_DATA) < bpf_ringbuf_query(&raw_stacks, BPF_RB_RING_SIZE) / 4;
}

static __always_inline u64 send_raw(struct scratch *scratch, const struct registers *regs, u32 image, u64 pid_tgid, u64 time)
{
	if (!has_page(regs, RAW_FEW_PAGES))
		return send_pages(scratch, regs, image, pid_tgid, time, RAW_FEW_PAGES);
	if (!has_page(regs, RAW_MOST_PAGES) || !raw_ring_is_roomy())
		return send_pages(scratch, regs, image, pid_tgid, time, RAW_MOST_PAGES);
	return send_pages(scratch, regs, image, pid_tgid, time, RAW_DEEP_PAGES);
}

/*
 * Takes the current task's stack from the registers in `scratch`, below the kernel part that is there. Returns as take_stack does. A separate
 * function: otherwise the verifier explores it together with every path of the programs that use it.
 */
__noinline u64 take_user_part(struct scratch *scratch, struct walk_cache *cache, struct image *image)
{
	const struct registers *regs;
	struct stack_record *record;
	struct walker walker = { .scratch = scratch };
	struct range *range, none = {};
	u64 id = 0, size;
	u32 image_id;
	u8 one = 1;

	if (!scratch || !image)
		return 0;
	regs = &scratch->registers;
	record = &scratch->record;
	image_id = image->id;
	range = bpf_map_lookup_elem(&mapping_ranges, &image_id);
	scratch->range = range ? *range : none;
	scratch->owner = (u64)image_id << 32 | scratch->range.generation;
	scratch->remembered = 0;
	if (cache) {
		u32 index = recall_stack(cache, regs, scratch->owner, &id);

		if (id)
			return id;
		walker.memo = &cache->memos[index & (MEMOS - 1)];
		begin_memo(walker.memo, regs, scratch->owner);
		if (cache->deep)
			walker.deep = bpf_task_storage_get(&deep_memos, bpf_get_current_task_btf(), 0,
							   BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (walker.deep)
			walker.deep->count = 0;
	}
	scratch->sp = regs->general[REGISTER_RSP];
	scratch->span = 0;
	scratch->depth = 0;
	scratch->unready = 0;
	scratch->result = WALK_END;
	walk_start(&scratch->state, regs->ip, regs->general[REGISTER_RSP], regs->general[REGISTER_RBP],
		   regs->general[REGISTER_RBX]);
	if (!scratch->checked || !image->memory || (u64)BPF_CORE_READ(bpf_get_current_task_btf(), mm) == image->memory)
		bpf_loop(MAX_USER_FRAMES, walk_one, &walker, 0);
	if (scratch->unready && image->raw_left && !scratch->range.full) {
		id = send_raw(scratch, regs, image_id, scratch->pid_tgid, scratch->time);
		if (id) {
			image->raw_left--;
			return id;
		}
	}

	id = mix(scratch->hash, scratch->kernel_frames) | 1;
	if (bpf_map_lookup_elem(&stacks_sent, &id))
		goto sent;
	if (scratch->range.full)
		return STACK_LEFT_OUT;
	record->type = RECORD_STACK;
	record->image = image_id;
	record->id = id;
	record->time = scratch->time;
	record->pid = scratch->pid_tgid >> 32;
	record->user_frames = scratch->depth;
	record->kernel_frames = scratch->kernel_frames;
	record->result = scratch->result == WALK_MORE ? WALK_TRUNCATED : scratch->result;
	size = STACK_HEADER + 8 * ((u64)scratch->kernel_frames + scratch->depth);
	if (size > sizeof(*record))
		return 0;
	if (bpf_ringbuf_output(&events, record, size, wake_seldom())) {
		count_loss(LOSS_STACK);
		return id;
	}
	bpf_map_update_elem(&stacks_sent, &id, &one, BPF_ANY);
sent:
	/* A stack that did not fit into the raw ring is tried again. */
	if (cache && !scratch->state.by_register && !(scratch->unready && image->raw_left)) {
		end_memo(walker.memo, scratch->sp, scratch->span, id);
		if (walker.memo->count == MEMO_FULL)
			cache->deep = 1;
		/* WALK_MORE: truncated at the most frames, which is the same again with the same words. */
		scratch->remembered = (scratch->result == WALK_END || scratch->result == WALK_MORE) && !scratch->unready;
	}
	return id;
}

/*
 * Takes the current task's stack from the registers in `scratch`, sends it if it is new, and returns its id; 0 if there
 * is none. `cache` is the thread's cache, if it is used; `kernel` requests the kernel part too.
 */
static __always_inline u64 take_stack(void *ctx, struct scratch *scratch, struct walk_cache *cache, struct image *image,
				      u64 pid_tgid, u64 time, bool kernel)
{
	scratch->time = time;
	scratch->pid_tgid = pid_tgid;
	scratch->checked = kernel;
	scratch->hash = image->id;
	scratch->kernel_frames = kernel ? take_kernel_part(ctx, scratch->record.frames, &scratch->hash) : 0;
	return take_user_part(scratch, cache, image);
}

#endif
