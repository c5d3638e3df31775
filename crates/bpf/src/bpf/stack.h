/* SPDX-License-Identifier: MIT */
/*
 * Stacks: gathered into a caller's scratch memory, hashed, and sent once for each distinct one.
 *
 * A stack's id is a 64-bit hash of its image and frames. The set of ids already sent is an LRU map: a stack that falls
 * out of it is sent again, which costs a little and changes nothing.
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

static __always_inline u64 mix(u64 hash, u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 29);
}

static __always_inline u32 take_kernel_part(void *ctx, u64 *frames)
{
	long bytes = bpf_get_stack(ctx, frames, 8 * MAX_KERNEL_FRAMES, 0);
	u32 count = bytes > 0 ? (u64)bytes / 8 : 0;

	if (count > MAX_KERNEL_FRAMES)
		count = MAX_KERNEL_FRAMES;
	/* All but the innermost are return addresses: less one, they lie in the calling instruction. */
	for (u32 i = 1; i < MAX_KERNEL_FRAMES; i++) {
		if (i >= count)
			break;
		frames[i]--;
	}
	return count;
}

/* Sends the stack's memory for the reader to walk. Such a stack has an id of its own: it is compared with no other. */
static __always_inline u64 send_pages(struct walker *walker, const struct registers *regs, u32 image, u64 pid_tgid,
				      u64 time, const u32 pages)
{
	struct raw_stack_record *raw = bpf_ringbuf_reserve(&events, sizeof(*raw) + pages * RAW_PAGE, 0);
	u64 id, page = regs->sp & ~(u64)(RAW_PAGE - 1);

	if (!raw) {
		count_loss(LOSS_STACK);
		return 0;
	}
	id = mix(mix(mix(image, pid_tgid), time), regs->sp) | 1;
	raw->type = RECORD_RAW_STACK;
	raw->image = image;
	raw->id = id;
	raw->time = time;
	raw->pid = pid_tgid >> 32;
	raw->ip = regs->ip;
	raw->sp = regs->sp;
	raw->bp = regs->bp;
	raw->kernel_frames = walker->kernel_frames;
	raw->pages = 0;
	bpf_probe_read_kernel(raw->kernel, sizeof(raw->kernel), walker->out->frames);
#pragma unroll
	for (u32 i = 0; i < pages; i++) {
		if (bpf_probe_read_user(raw->bytes + i * RAW_PAGE, RAW_PAGE, (void *)(page + i * RAW_PAGE)))
			break;
		raw->pages = i + 1;
	}
	/* Wakes the reader: the sooner it brings the tables, the fewer of these there are. */
	bpf_ringbuf_submit(raw, 0);
	return id;
}

static __always_inline u64 send_raw(struct walker *walker, const struct registers *regs, u32 image, u64 pid_tgid, u64 time)
{
	u64 beyond = (regs->sp & ~(u64)(RAW_PAGE - 1)) + RAW_FEW_PAGES * RAW_PAGE, word;

	if (bpf_probe_read_user(&word, sizeof(word), (void *)beyond))
		return send_pages(walker, regs, image, pid_tgid, time, RAW_FEW_PAGES);
	return send_pages(walker, regs, image, pid_tgid, time, RAW_MOST_PAGES);
}

/*
 * Takes the current task's stack, sends it if it is new, and returns its id; 0 if there is none.
 * `kernel` asks for the kernel part too.
 */
static __always_inline u64 take_stack(void *ctx, const struct registers *regs, struct stack_record *scratch,
				      struct image *image, u64 pid_tgid, u64 time, bool kernel)
{
	struct walker walker = { .out = scratch };
	u32 image_id = image->id, total, i;
	struct range *range = bpf_map_lookup_elem(&mapping_ranges, &image_id);
	u64 id, size;
	u8 one = 1;

	if (range)
		walker.range = *range;
	if (kernel)
		walker.kernel_frames = take_kernel_part(ctx, scratch->frames);
	walk_start(&walker.state, regs->ip, regs->sp, regs->bp);
	bpf_loop(MAX_USER_FRAMES, walk_one, &walker, 0);
	if (walker.unready && image->raw_left) {
		image->raw_left--;
		return send_raw(&walker, regs, image_id, pid_tgid, time);
	}

	total = walker.kernel_frames + walker.depth;
	id = mix(image_id, total);
	id = mix(id, walker.kernel_frames);
	for (i = 0; i < MAX_KERNEL_FRAMES + MAX_USER_FRAMES; i++) {
		if (i >= total)
			break;
		id = mix(id, scratch->frames[i]);
	}
	id |= 1;
	if (bpf_map_lookup_elem(&stacks_sent, &id))
		return id;

	scratch->type = RECORD_STACK;
	scratch->image = image_id;
	scratch->id = id;
	scratch->time = time;
	scratch->pid = pid_tgid >> 32;
	scratch->user_frames = walker.depth;
	scratch->kernel_frames = walker.kernel_frames;
	scratch->result = walker.result == WALK_MORE ? WALK_TRUNCATED : walker.result;
	size = STACK_HEADER + 8 * (u64)total;
	if (size > sizeof(*scratch))
		return 0;
	if (bpf_ringbuf_output(&events, scratch, size, wake_seldom()))
		count_loss(LOSS_STACK);
	else
		bpf_map_update_elem(&stacks_sent, &id, &one, BPF_ANY);
	return id;
}

#endif
