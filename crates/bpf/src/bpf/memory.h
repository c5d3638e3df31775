/* SPDX-License-Identifier: MIT */
/*
 * How calls change live memory and contexts. crates/cuda/src/memory.rs has the rules and the test vectors;
 * crates/model/src/calls/memory.rs follows the same rules where calls are recorded one by one.
 */
#ifndef WARPSCOPE_MEMORY_H
#define WARPSCOPE_MEMORY_H

#include "allocations.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct context_key);
	__type(value, struct context);
} contexts SEC(".maps");

const struct context empty_context = {};

static __always_inline u64 current_place(const struct thread_calls *calls)
{
	return calls->place ? calls->place : PLACE_DEVICE;
}

static __always_inline struct context *context_in(u32 image, u32 slot)
{
	struct context_key key = { .image = image, .slot = slot };

	return find_or_make(&contexts, &key, &empty_context);
}

static __always_inline u32 slot_of_device(u64 device)
{
	return (u32)device % CONTEXT_SLOTS;
}

static __always_inline u32 slot_of_handle(u64 handle)
{
	return CONTEXT_SLOTS + mix(0, handle) % CONTEXT_SLOTS;
}

/* The place of a context: for a primary context, its device. */
static __always_inline u64 place_of(u32 image, u64 handle)
{
	struct context_key key = { .image = image, .slot = slot_of_handle(handle) };
	struct context *context = bpf_map_lookup_elem(&contexts, &key);

	return context && context->handle == handle ? context->device : handle;
}

static __noinline int end_alloc(const struct thread_calls *calls, const struct function *function,
				const struct call_record *call, u64 bytes)
{
	struct allocation_key key = { .image = call->image, .group = function->group };
	struct allocation allocation = {
		.bytes = bytes,
		.time = call->end,
		.place = current_place(calls),
		.space = function->space,
		.user = (u32)bpf_get_current_uid_gid() % USERS,
		.site = { .stack = call->stack, .python = call->python, .image = call->image, .function = call->function },
	};
	struct memory_sum *sum = memory_of(call->image, function->space);
	struct image *image = image_of_call(call);
	struct allocation *before;

	if (!sum)
		return 0;
	if (is_error(function, call->result)) {
		__sync_fetch_and_add(&sum->failed, 1);
		return 0;
	}
	__sync_fetch_and_add(&sum->allocations, 1);
	__sync_fetch_and_add(&sum->allocated_bytes, bytes);
	key.address = function->out ? call->out : call->word[0];
	if ((function->out && !(call->flags & CALL_HAS_OUT)) || !key.address)
		return 0;
	before = bpf_map_lookup_elem(&allocations, &key);
	if (before) {
		struct allocation missed = *before;

		if (!bpf_map_delete_elem(&allocations, &key)) {
			struct memory_sum *of_missed = remove_live(&missed, image);

			if (of_missed)
				__sync_fetch_and_add(&of_missed->missed_frees, 1);
		}
	}
	if (allocation.place & PLACE_DEVICE) {
		struct context *context = context_in(call->image, slot_of_device(allocation.place));

		/* The context exists, so it has been retained. */
		if (context && !context->references)
			context->unseen = 1;
	}
	if (!take_share(image, allocation.user)) {
		__sync_fetch_and_add(&sum->untracked, 1);
		return 0;
	}
	if (bpf_map_update_elem(&allocations, &key, &allocation, BPF_NOEXIST)) {
		give_share_back(image, allocation.user);
		__sync_fetch_and_add(&sum->untracked, 1);
		count_loss(LOSS_CALL_SUMS);
		return 0;
	}
	add_live(&allocation, sum);
	return 0;
}

/* At the entry: once the driver has freed the address, another thread may get it again. */
static __noinline int begin_free(const struct function *function, struct open_call *open)
{
	struct call_record *call = &open->record;
	struct allocation_key key = { .image = call->image, .group = function->group, .address = call->word[0] };
	struct allocation *found = bpf_map_lookup_elem(&allocations, &key);

	open->removed = 0;
	if (!found)
		return 0;
	open->allocation = *found;
	/* If two threads free it, one of them deletes it. */
	if (bpf_map_delete_elem(&allocations, &key))
		return 0;
	open->removed = 1;
	remove_live(&open->allocation, image_of_call(call));
	return 0;
}

static __noinline int end_free(const struct function *function, const struct open_call *open)
{
	const struct call_record *call = &open->record;
	struct allocation_key key = { .image = call->image, .group = function->group, .address = call->word[0] };
	struct memory_sum *sum;
	struct image *image;

	if (!key.address)
		return 0;
	sum = memory_of(call->image, open->removed ? open->allocation.space : function->space);
	if (!sum)
		return 0;
	if (!is_error(function, call->result)) {
		__sync_fetch_and_add(&sum->frees, 1);
		if (!open->removed)
			__sync_fetch_and_add(&sum->unknown_frees, 1);
		return 0;
	}
	__sync_fetch_and_add(&sum->failed_frees, 1);
	if (!open->removed)
		return 0;
	/* It is still live, unless its address was allocated again: then it was freed by an unseen call. */
	image = image_of_call(call);
	if (bpf_map_update_elem(&allocations, &key, &open->allocation, BPF_NOEXIST)) {
		__sync_fetch_and_add(&sum->missed_frees, 1);
		return 0;
	}
	if (image) {
		u32 user = open->allocation.user;
		u64 *held = bpf_map_lookup_elem(&held_by_user, &user);

		__sync_fetch_and_add(&image->held, 1);
		if (held)
			__sync_fetch_and_add(held, 1);
	}
	add_live(&open->allocation, sum);
	return 0;
}

struct release {
	u64 place;
	u64 before;
	struct image *image;
	u32 image_id;
};

static long release_one(void *map, const struct allocation_key *key, const struct allocation *allocation,
			struct release *release)
{
	struct allocation_key own;
	struct allocation copy;
	struct memory_sum *sum;

	if (key->image != release->image_id || allocation->place != release->place || allocation->time > release->before ||
	    key->group >= GROUP_WITHOUT_CONTEXT)
		return 0;
	own = *key;
	copy = *allocation;
	if (bpf_map_delete_elem(&allocations, &own))
		return 0;
	sum = remove_live(&copy, 0);
	if (release->image)
		__sync_fetch_and_add(&release->image->held, -1);
	if (sum)
		__sync_fetch_and_add(&sum->released, 1);
	return 0;
}

/* Releases everything allocated at a place before a call began. */
static __noinline int release_place(const struct call_record *call, u64 place)
{
	struct release release = { .place = place, .before = call->start, .image_id = call->image };

	release.image = image_of_call(call);
	if (release.image && release.image->held)
		bpf_for_each_map_elem(&allocations, release_one, &release, 0);
	return 0;
}

static __always_inline void retain_primary(const struct call_record *call)
{
	u64 device = PLACE_DEVICE | (u32)call->word[1];
	struct context *context = context_in(call->image, slot_of_device(device));

	if (context)
		__sync_fetch_and_add(&context->references, 1);
	if (!(call->flags & CALL_HAS_OUT) || !call->out)
		return;
	context = context_in(call->image, slot_of_handle(call->out));
	if (context) {
		context->handle = call->out;
		context->device = device;
	}
}

/* True if that was the last reference. */
static __always_inline bool release_primary(const struct call_record *call)
{
	struct context *context = context_in(call->image, slot_of_device(call->word[0]));

	return context && context->references && __sync_fetch_and_add(&context->references, -1) == 1 && !context->unseen;
}

static __noinline int change_context(struct thread_calls *calls, const struct function *function,
				     const struct call_record *call)
{
	u64 word = call->word[0], place;

	if (is_error(function, call->result))
		return 0;
	switch (function->memory) {
	case MEMORY_SET_DEVICE:
		calls->place = PLACE_DEVICE | (u32)word;
		break;
	case MEMORY_SET_CONTEXT:
		calls->place = word ? place_of(call->image, word) : 0;
		break;
	case MEMORY_PUSH_CONTEXT:
		calls->place_below = calls->place;
		calls->place = place_of(call->image, word);
		break;
	case MEMORY_POP_CONTEXT:
		calls->place = calls->place_below;
		calls->place_below = 0;
		break;
	case MEMORY_CREATE_CONTEXT:
		if (call->flags & CALL_HAS_OUT) {
			calls->place_below = calls->place;
			calls->place = call->out;
		}
		break;
	case MEMORY_DESTROY_CONTEXT:
		release_place(call, word);
		if (calls->place == word) {
			calls->place = calls->place_below;
			calls->place_below = 0;
		}
		break;
	case MEMORY_RETAIN_PRIMARY:
		retain_primary(call);
		break;
	case MEMORY_RELEASE_PRIMARY:
		if (release_primary(call))
			release_place(call, PLACE_DEVICE | (u32)word);
		break;
	case MEMORY_RESET_PRIMARY:
		release_place(call, PLACE_DEVICE | (u32)word);
		break;
	case MEMORY_RESET_DEVICE:
		place = current_place(calls);
		if (place & PLACE_DEVICE)
			release_place(call, place);
		break;
	}
	return 0;
}

/* Handles the return of a call that affects memory. */
static __always_inline void account_memory(struct thread_calls *calls, const struct function *function,
					   const struct open_call *open, u64 bytes)
{
	bool nested = open->record.flags & CALL_NESTED;

	if (function->memory == MEMORY_ALLOC) {
		if (!nested)
			end_alloc(calls, function, &open->record, bytes);
	} else if (function->memory == MEMORY_FREE) {
		if (!nested)
			end_free(function, open);
	} else {
		/* Nested calls count too: the runtime sets devices and retains contexts inside other calls. */
		change_context(calls, function, &open->record);
	}
}

#endif
