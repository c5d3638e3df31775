/* SPDX-License-Identifier: MIT */
/*
 * Stacks: gathered into a caller's scratch memory, hashed, and sent once for each distinct one.
 *
 * A stack's id is a 64-bit hash of its image and frames. The set of ids already sent is an LRU map: a stack that falls
 * out of it is sent again, which costs a little and changes nothing.
 */
#ifndef WARPSCOPE_STACK_H
#define WARPSCOPE_STACK_H

#include "events.h"

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

static __always_inline u32 frame_count(long bytes, u32 most)
{
	u32 count = bytes > 0 ? (u64)bytes / 8 : 0;

	return count > most ? most : count;
}

/*
 * Takes the current task's stack, sends it if it is new, and returns its id; 0 if there is none.
 * `kernel` asks for the kernel part too.
 */
static __always_inline u64 take_stack(void *ctx, struct stack_record *scratch, const struct image *image, u32 pid,
				      u64 time, bool kernel)
{
	u32 kernel_frames = 0, user_frames, total, i;
	u64 id, size;
	u8 one = 1;

	if (kernel)
		kernel_frames = frame_count(bpf_get_stack(ctx, scratch->frames, 8 * MAX_KERNEL_FRAMES, 0),
					    MAX_KERNEL_FRAMES);
	user_frames = frame_count(bpf_get_stack(ctx, &scratch->frames[kernel_frames & (MAX_KERNEL_FRAMES - 1)],
						8 * MAX_USER_FRAMES, BPF_F_USER_STACK),
				  MAX_USER_FRAMES);
	if (kernel_frames == MAX_KERNEL_FRAMES)
		kernel_frames = 0; /* the user part lies where they were */
	total = kernel_frames + user_frames;
	if (!total) {
		count_loss(LOSS_WALK);
		return 0;
	}

	id = mix(image->id, total);
	id = mix(id, kernel_frames);
	for (i = 0; i < MAX_KERNEL_FRAMES + MAX_USER_FRAMES; i++) {
		if (i >= total)
			break;
		id = mix(id, scratch->frames[i]);
	}
	if (!id)
		id = 1;
	if (bpf_map_lookup_elem(&stacks_sent, &id))
		return id;

	scratch->type = RECORD_STACK;
	scratch->image = image->id;
	scratch->id = id;
	scratch->time = time;
	scratch->pid = pid;
	scratch->user_frames = user_frames;
	scratch->kernel_frames = kernel_frames;
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
