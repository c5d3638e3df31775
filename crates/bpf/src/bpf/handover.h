/* SPDX-License-Identifier: MIT */
/*
 * Work handed to other threads: PyTorch's backward(), whose work is done by autograd's threads.
 *
 *   Engine::execute_with_graph_task   on the thread that called backward(): entry and return, with its stack
 *   Engine::evaluate_function         on the thread that does the work, for each node: probed only once calls in
 *                                     progress could not be distinguished without it
 *
 * Both have a reference to the same GraphTask, a std::shared_ptr whose first word is the object's address.
 */
#ifndef WARPSCOPE_HANDOVER_H
#define WARPSCOPE_HANDOVER_H

#include "handover_state.h"
#include "launch.h"

/* 0 means none. */
u32 next_handover = 1;

static __always_inline struct handing_thread *handing_thread(struct image *image)
{
	struct handing_thread *thread = bpf_task_storage_get(&handing_threads, bpf_get_current_task_btf(), 0,
							     BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (thread && thread->image != image->id) {
		thread->image = image->id;
		thread->depth = 0;
		thread->node = 0;
		thread->own = 0;
	}
	return thread;
}

/* The GraphTask that an argument refers to. */
static __always_inline u64 graph_task(u64 reference)
{
	u64 task = 0;

	bpf_probe_read_user(&task, sizeof(task), (void *)reference);
	return task;
}

static __always_inline int hand_over(struct pt_regs *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid(), own = own_pid_tgid(pid_tgid), sp = PT_REGS_SP(ctx), caller = 0;
	struct image *image = image_of(pid_tgid >> 32);
	struct handover_record record = { .type = RECORD_HANDOVER };
	struct handing_thread *thread;
	struct handing_call *call;
	struct task_key key = {};

	if (!image)
		return 0;
	thread = handing_thread(image);
	if (!thread) {
		/* Without it, this call would look as if it were not in progress: from now on, none is the only one. */
		__sync_fetch_and_add(handed_by(image), 2 * HANDED_ONE);
		return 0;
	}
	/* Calls that were left without a return, by an exception. */
	end_handing(thread, image, sp + 8);
	if (thread->depth >= HANDING_DEPTH)
		return 0; /* others of this thread are in progress, so that none is the only one */
	record.image = image->id;
	record.time = bpf_ktime_get_ns();
	record.pid = own >> 32;
	record.tid = own;
	record.id = __sync_fetch_and_add(&next_handover, 1);
	record.cause = cause_of(image);
	bpf_probe_read_user(&caller, sizeof(caller), (void *)sp);
	if (is_return_trap(caller))
		caller = real_return(sp);
	take_both(ctx, caller - 1, sp + 8, image, pid_tgid, record.time, &record.stack, &record.python);
	send(&record, sizeof(record), wake_seldom(), LOSS_STACK);

	call = &thread->calls[thread->depth & (HANDING_DEPTH - 1)];
	call->sp = sp;
	call->id = record.id;
	call->before = thread->node;
	/* The first argument is where to put the result, the second one the engine. */
	call->task = graph_task(PT_REGS_PARM3(ctx));
	key.task = call->task;
	key.image = record.image;
	bpf_map_update_elem(&handed_tasks, &key, &record.id, BPF_ANY);
	thread->depth++;
	thread->own += HANDED_ONE | record.id;
	__sync_fetch_and_add(handed_by(image), HANDED_ONE | record.id);
	return 0;
}

/*
 * At a return instruction. A return probe would replace the return address: an exception that leaves the function would then
 * terminate the program.
 */
static __always_inline int hand_back(struct pt_regs *ctx)
{
	struct image *image = image_of(bpf_get_current_pid_tgid() >> 32);
	struct handing_thread *thread = bpf_task_storage_get(&handing_threads, bpf_get_current_task_btf(), 0, 0);

	if (image && thread && thread->image == image->id)
		end_handing(thread, image, PT_REGS_SP(ctx) + 8);
	return 0;
}

static __always_inline int handed_node(struct pt_regs *ctx)
{
	struct image *image = image_of(bpf_get_current_pid_tgid() >> 32);
	struct handing_thread *thread = image ? handing_thread(image) : 0;
	struct task_key key = {};
	u32 *id;

	if (!image || !thread)
		return 0;
	key.task = graph_task(PT_REGS_PARM2(ctx));
	key.image = image->id;
	id = bpf_map_lookup_elem(&handed_tasks, &key);
	thread->node = id ? *id : CAUSE_UNKNOWN;
	report_nodes();
	return 0;
}

static __always_inline int measured(struct pt_regs *ctx, int (*program)(struct pt_regs *))
{
	u64 begun = cost_begin();

	program(ctx);
	cost_end(COST_HIT, begun);
	return 0;
}

SEC("uprobe.multi")
int hand_over_multi(struct pt_regs *ctx)
{
	return measured(ctx, hand_over);
}

SEC("uprobe")
int hand_over_single(struct pt_regs *ctx)
{
	return measured(ctx, hand_over);
}

SEC("uprobe.multi")
int hand_back_multi(struct pt_regs *ctx)
{
	return measured(ctx, hand_back);
}

SEC("uprobe")
int hand_back_single(struct pt_regs *ctx)
{
	return measured(ctx, hand_back);
}

SEC("uprobe.multi")
int handed_node_multi(struct pt_regs *ctx)
{
	return measured(ctx, handed_node);
}

SEC("uprobe")
int handed_node_single(struct pt_regs *ctx)
{
	return measured(ctx, handed_node);
}

#endif
