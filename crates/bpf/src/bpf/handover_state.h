/* SPDX-License-Identifier: MIT */
/*
 * Which call handed over the work that a thread does.
 *
 * A call that hands work to other threads (handover.h) returns when all of that work is done. So while exactly one such
 * call is in progress in a process, the work that its worker threads do is that call's. `handed.calls` says so in one
 * word, updated with one atomic addition: the number of calls in progress and the sum of their ids, which is the id
 * itself if there is only one. Processes map these words for reading, so that a thread knows the cause of a launch without
 * a probe.
 *
 * A worker may make such a call itself, within its work. It then does work of its own call or of others; those of its own
 * call are part of the work that it was doing. So its own calls do not count: if one other is in progress, its work is
 * that call's. Where several are left, a probe on each piece of work says whose it is.
 *
 * A probe on each node of autograd would cost more than everything else at a launch; this needs two for each
 * backward(). Three cases are attributed to another call if exactly one is in progress: work that a failed graph task
 * still has on another device's thread when the next backward() begins; distributed autograd (RPC), which does not use
 * the function; and a CPU sample in the last instructions of GraphTask::mark_as_completed_and_run_post_processing,
 * after it has woken the calling thread.
 */
#ifndef WARPSCOPE_HANDOVER_STATE_H
#define WARPSCOPE_HANDOVER_STATE_H

#include "events.h"

#define HANDED_ONE (1ull << 48)
/* The most calls in progress of one thread, each within the work of the one before. A power of two. */
#define HANDING_DEPTH 64

/* A call in progress. */
struct handing_call {
	u64 sp; /* at its entry */
	u64 task; /* what identifies its work */
	u32 id;
	u32 before; /* the thread's `node` at its entry */
};

/* The calls in progress of a thread, and the call whose work it does. */
struct handing_thread {
	u32 image;
	u32 depth;
	u32 node; /* 0 if no probe has reported it */
	u32 pad;
	u64 own; /* its calls in progress, as in `handed.calls` */
	struct handing_call calls[HANDING_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct handing_thread);
} handing_threads SEC(".maps");

struct task_key {
	u64 task;
	u32 image;
	u32 pad;
};

/* The ids of calls in progress, by what identifies their work. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct task_key);
	__type(value, u32);
} handed_tasks SEC(".maps");

/*
 * By image, modulo their number. An image has one if it was free when the image began. The first one belongs to none: it is
 * not 0 if any piece of work has been reported by a probe.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HANDED_CALLS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct handed);
} handed_calls SEC(".maps");

static __always_inline struct handed *handed_place(u32 image)
{
	u32 place = image & (HANDED_CALLS - 1);

	return bpf_map_lookup_elem(&handed_calls, &place);
}

/* A new image takes its place, if that is free. */
static __always_inline void begin_handed(u32 image)
{
	struct handed *handed = handed_place(image);

	if (handed && image & (HANDED_CALLS - 1) && !__sync_val_compare_and_swap(&handed->image, 0, image)) {
		handed->calls = 0;
		handed->pools = 0;
	}
}

/* The image has ended, and with it its calls. */
static __always_inline void end_handed(u32 image)
{
	struct handed *handed = handed_place(image);

	if (handed && handed->image == image) {
		handed->calls = 0;
		handed->pools = 0;
		__sync_val_compare_and_swap(&handed->image, image, 0);
	}
}

/* The calls in progress of an image. */
static __always_inline u64 *handed_by(struct image *image)
{
	struct handed *handed = handed_place(image->id);

	return handed && handed->image == image->id ? &handed->calls : &image->handed;
}

/* Whether any piece of work has been reported by a probe. */
bool nodes_reported = false;
/* Whether any task of a thread pool has. Its call may have returned: none needs to be in progress. */
bool tasks_reported = false;

static __always_inline void report_nodes(void)
{
	struct handed *first = handed_place(0);

	nodes_reported = true;
	if (first)
		first->calls = 1;
}

/* From now on, the process reads no causes: only the probes know them. */
static __always_inline void report_tasks(struct image *image)
{
	struct handed *handed = handed_place(image->id);

	tasks_reported = true;
	if (handed && handed->image == image->id)
		handed->pools = 1;
}

/* The call whose work the current thread does. Whether it does such work at all is decided later, by its stack. */
static __always_inline u32 cause_of(struct image *image)
{
	u64 handed = *(const volatile u64 *)handed_by(image);

	if (!handed && !tasks_reported)
		return CAUSE_NONE;
	if (nodes_reported || tasks_reported || handed >> 48 > 1) {
		struct handing_thread *thread = bpf_task_storage_get(&handing_threads, bpf_get_current_task_btf(), 0, 0);

		if (thread && thread->image == image->id) {
			if (thread->node)
				return thread->node;
			handed -= thread->own;
		}
	}
	if (!handed)
		return CAUSE_NONE;
	return handed >> 48 == 1 ? (u32)handed : CAUSE_UNKNOWN;
}

/* Ends the calls of a thread whose stack began below `sp`. A separate function for the verifier. */
__noinline int end_handing(struct handing_thread *thread, struct image *image, u64 sp)
{
	struct task_key key = {};

	if (!thread || !image)
		return 0;
	key.image = image->id;
	for (u32 i = 0; i < HANDING_DEPTH; i++) {
		struct handing_call *call = &thread->calls[(thread->depth - 1) & (HANDING_DEPTH - 1)];

		if (!thread->depth || call->sp >= sp)
			break;
		thread->depth--;
		thread->node = call->before;
		key.task = call->task;
		bpf_map_delete_elem(&handed_tasks, &key);
		thread->own -= HANDED_ONE | call->id;
		__sync_fetch_and_add(handed_by(image), -(HANDED_ONE | call->id));
	}
	return 0;
}

/* The calls of an exiting thread end with it. */
static __always_inline void end_handing_of(struct task_struct *task, struct image *image)
{
	struct handing_thread *thread = bpf_task_storage_get(&handing_threads, task, 0, 0);

	if (thread && thread->depth && thread->image == image->id)
		end_handing(thread, image, (u64)-1);
}

#endif
