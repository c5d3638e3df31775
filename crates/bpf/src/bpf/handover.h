/* SPDX-License-Identifier: MIT */
/*
 * Work handed to other threads: PyTorch's backward(), whose work is done by autograd's threads.
 *
 *   Engine::execute_with_graph_task   on the thread that called backward(): entry and return, with its stack
 *   Engine::evaluate_function         on the thread that does the work, for each node: probed only once calls in
 *                                     progress could not be distinguished without it
 *
 * Both have a reference to the same GraphTask, a std::shared_ptr whose first word is the object's address.
 *
 * On request, the forward code that made a node is found, too:
 *
 *   sequence_number::get_and_increment   on the thread that runs the forward code, once for each node: the number that the
 *                                        node keeps, with its stack
 *
 * The numbers count for each thread, so one that several threads got is not used.
 */
#ifndef WARPSCOPE_HANDOVER_H
#define WARPSCOPE_HANDOVER_H

#include "handover_state.h"
#include "launch.h"

/* Where a Node has its number: after the pointers of its class and of std::enable_shared_from_this. */
#define NODE_SEQUENCE 24

/* Set before loading: forward code is found. */
const volatile bool forward_found = false;

/* 0 means none. */
u32 next_handover = 1;

struct sequence_key {
	u64 sequence;
	u32 image;
	u32 pad;
};

/* What made a node. */
struct made_node {
	u64 stack;
	u64 python;
	u32 tid; /* 0 if several threads got this number */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct sequence_key);
	__type(value, struct made_node);
} made_nodes SEC(".maps");

/* A call, and the code that made a part of its work. */
struct forward_key {
	u64 stack;
	u64 python;
	u32 call;
	u32 image;
};

/* The ids of those that have been sent. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct forward_key);
	__type(value, u32);
} forward_causes SEC(".maps");

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

/* At the return instruction of get_and_increment. */
static __always_inline int node_made(struct pt_regs *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid(), sp = PT_REGS_SP(ctx), caller = 0;
	struct image *image = image_of(pid_tgid >> 32);
	struct made_node made = { .tid = (u32)pid_tgid }, *before;
	struct sequence_key key = { .sequence = PT_REGS_RC(ctx) };

	if (!image)
		return 0;
	key.image = image->id;
	before = bpf_map_lookup_elem(&made_nodes, &key);
	if (before && before->tid != made.tid) {
		before->tid = 0;
		return 0;
	}
	bpf_probe_read_user(&caller, sizeof(caller), (void *)sp);
	if (is_return_trap(caller))
		caller = real_return(sp);
	take_both(ctx, caller - 1, sp + 8, image, pid_tgid, bpf_ktime_get_ns(), &made.stack, &made.python);
	bpf_map_update_elem(&made_nodes, &key, &made, BPF_ANY);
	return 0;
}

/* The cause of a node's work: the call, or the call with the code that made the node, if that is known. */
static __always_inline u32 cause_of_node(struct image *image, u32 call, u64 node)
{
	struct handover_record record = { .type = RECORD_FORWARD, .image = image->id, .cause = call };
	struct forward_key forward = { .call = call, .image = image->id };
	struct sequence_key key = { .image = image->id };
	struct made_node *made;
	u32 *known;

	if (bpf_probe_read_user(&key.sequence, sizeof(key.sequence), (void *)(node + NODE_SEQUENCE)))
		return call;
	made = bpf_map_lookup_elem(&made_nodes, &key);
	if (!made || !made->tid || !made->python)
		return call;
	forward.stack = made->stack;
	forward.python = made->python;
	known = bpf_map_lookup_elem(&forward_causes, &forward);
	if (known)
		return *known;
	record.id = __sync_fetch_and_add(&next_handover, 1);
	record.stack = forward.stack;
	record.python = forward.python;
	record.time = bpf_ktime_get_ns();
	if (bpf_ringbuf_output(&events, &record, sizeof(record), wake_seldom())) {
		count_loss(LOSS_STACK);
		return call;
	}
	bpf_map_update_elem(&forward_causes, &forward, &record.id, BPF_ANY);
	return record.id;
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
	if (!id)
		thread->node = CAUSE_UNKNOWN;
	else
		thread->node = forward_found ? cause_of_node(image, *id, PT_REGS_PARM3(ctx)) : *id;
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

SEC("uprobe.multi")
int node_made_multi(struct pt_regs *ctx)
{
	return measured(ctx, node_made);
}

SEC("uprobe")
int node_made_single(struct pt_regs *ctx)
{
	return measured(ctx, node_made);
}

#endif
