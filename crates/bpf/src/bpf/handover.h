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
 *
 * Tasks of XLA's thread pools:
 *
 *   Schedule, ScheduleWithHint        on the thread that hands a task over, with its stack
 *   the call of the task              on the thread of the pool, at the instruction that calls it
 *
 * Both have the task as a callable: a std::function or an absl::AnyInvocable. These have the same layout: the state or its
 * address, and how to call it. A task is moved from one to the other, and its state stays where it is.
 *
 * - backward() returns at probes on its return instructions. A return probe would replace the return address, and a
 *   C++ exception that leaves the function, as in a forked child, would terminate the program. A call left by an
 *   exception stays in progress until its thread makes another one from a shallower stack: until then work is at worst
 *   unknown, never wrong.
 * - A node keeps its sequence number after the pointers of its class and of std::enable_shared_from_this (offset 24 in
 *   PyTorch 2.11, compared with `grad_fn._sequence_nr()` on an H200). Each distinct pair of a call and a forward stack
 *   is a cause with an id of its own. This is off by default: it needs two probes for each node, and backward launches
 *   then need the marker's probe.
 * - XLA's calls return before their tasks have ended, so each task is followed on its own. A large state is in memory
 *   of its own, whose address identifies the task. A small one is in the callable itself, and equal tasks look alike:
 *   both words are compared, and if equal tasks of different calls wait at the same time, they are counted as lost
 *   handovers. The count of waiting tasks and their cause are one word, changed by compare-and-swap.
 * - A pool's loop has several indirect calls: those of a task, and those that destroy it. So the probe's cookie says
 *   where the instruction has the function's address, and it must be the one that the callable has.
 * - If a queue is full, the thread that hands a task over runs it at once: it no longer waits, and appears where it
 *   ran.
 */
#ifndef WARPSCOPE_HANDOVER_H
#define WARPSCOPE_HANDOVER_H

#include "handover_state.h"
#include "launch.h"
#include "sample.h"

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

/* The code that made a part of a call's work, or that handed a task over within the work of a call. */
struct cause_key {
	u64 stack;
	u64 python;
	u32 call;
	u32 image;
};

/* The ids of those that have been sent. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct cause_key);
	__type(value, u32);
} sent_causes SEC(".maps");

/* A std::function or an absl::AnyInvocable. */
struct callable {
	u64 state; /* or its address, if it is large */
	u64 more;
	u64 manager;
	u64 invoker;
};

/*
 * What identifies a task: the first word of its state, which is an address of its own if the state is large. If it is small,
 * other tasks may have the same one, and the second word is needed, too; it means nothing otherwise.
 */
struct callable_key {
	u64 state;
	u64 more; /* 0 if it is not `whole` */
	u64 invoker;
	u32 image;
	u32 whole;
};

/*
 * How many tasks with a key have been handed over and have not begun, in the upper half, and their cause, which is unknown if
 * they have different ones. Every task has both keys. Nothing is deleted: a full map drops what was not used for the longest time.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct callable_key);
	__type(value, u64);
} scheduled_tasks SEC(".maps");

#define TASK_ONE (1ull << 32)
/* So often another CPU may change a word in between. */
#define TASK_TRIES 16

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

/* Takes the stacks of the caller, at the entry or at a return instruction of a function. */
static __always_inline void take_caller(struct pt_regs *ctx, struct image *image, u64 pid_tgid, u64 time, u64 *stack,
					u64 *python)
{
	u64 sp = PT_REGS_SP(ctx), caller = 0;

	bpf_probe_read_user(&caller, sizeof(caller), (void *)sp);
	if (is_return_trap(caller))
		caller = real_return(sp);
	take_both(ctx, caller - 1, sp + 8, image, pid_tgid, time, stack, python);
}

static __always_inline int hand_over(struct pt_regs *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid(), own = own_pid_tgid(pid_tgid), sp = PT_REGS_SP(ctx);
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
	take_caller(ctx, image, pid_tgid, record.time, &record.stack, &record.python);
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
	u64 pid_tgid = bpf_get_current_pid_tgid();
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
	take_caller(ctx, image, pid_tgid, bpf_ktime_get_ns(), &made.stack, &made.python);
	bpf_map_update_elem(&made_nodes, &key, &made, BPF_ANY);
	return 0;
}

/* The id of a cause with this stack, which is sent if it is new; `otherwise` if that is not possible. */
static __always_inline u32 sent_cause(struct handover_record *record, u32 otherwise)
{
	struct cause_key key = {
		.stack = record->stack,
		.python = record->python,
		.call = record->cause,
		.image = record->image,
	};
	u32 *known = bpf_map_lookup_elem(&sent_causes, &key);

	if (known)
		return *known;
	record->id = __sync_fetch_and_add(&next_handover, 1);
	if (bpf_ringbuf_output(&events, record, sizeof(*record), wake_seldom())) {
		count_loss(LOSS_STACK);
		return otherwise;
	}
	bpf_map_update_elem(&sent_causes, &key, &record->id, BPF_ANY);
	return record->id;
}

/* The cause of a node's work: the call, or the call with the code that made the node, if that is known. */
static __always_inline u32 cause_of_node(struct image *image, u32 call, u64 node)
{
	struct handover_record record = { .type = RECORD_FORWARD, .image = image->id, .cause = call };
	struct sequence_key key = { .image = image->id };
	struct made_node *made;

	if (bpf_probe_read_user(&key.sequence, sizeof(key.sequence), (void *)(node + NODE_SEQUENCE)))
		return call;
	made = bpf_map_lookup_elem(&made_nodes, &key);
	if (!made || !made->tid || !made->python)
		return call;
	record.stack = made->stack;
	record.python = made->python;
	record.time = bpf_ktime_get_ns();
	return sent_cause(&record, call);
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

/* Both keys of a task; false if its callable cannot be read. */
static __always_inline bool read_task(struct callable_key key[2], struct image *image, u64 address)
{
	struct callable callable;

	if (bpf_probe_read_user(&callable, sizeof(callable), (void *)address))
		return false;
	key[0].state = key[1].state = callable.state;
	key[0].invoker = key[1].invoker = callable.invoker;
	key[0].image = key[1].image = image->id;
	key[1].more = callable.more;
	key[1].whole = 1;
	return true;
}

/* A task with this key and cause has been handed over. */
static __always_inline void add_task(const struct callable_key *key, u32 cause)
{
	u64 none = 0, *tasks;

	bpf_map_update_elem(&scheduled_tasks, key, &none, BPF_NOEXIST);
	tasks = bpf_map_lookup_elem(&scheduled_tasks, key);
	for (u32 i = 0; tasks && i < TASK_TRIES; i++) {
		u64 before = *(const volatile u64 *)tasks, after = before + TASK_ONE;

		if (before < TASK_ONE)
			after = TASK_ONE | cause;
		else if ((u32)before != cause)
			after |= CAUSE_UNKNOWN;
		if (__sync_val_compare_and_swap(tasks, before, after) == before)
			return;
	}
}

/* The cause of a task with this key, which begins; CAUSE_NONE if there is no such task. */
static __always_inline u32 take_task(const struct callable_key *key)
{
	u64 *tasks = bpf_map_lookup_elem(&scheduled_tasks, key);

	for (u32 i = 0; tasks && i < TASK_TRIES; i++) {
		u64 before = *(const volatile u64 *)tasks;

		if (before < TASK_ONE)
			return CAUSE_NONE;
		if (__sync_val_compare_and_swap(tasks, before, before - TASK_ONE) == before)
			return (u32)before;
	}
	return CAUSE_NONE;
}

/* The cause of a task that begins: its keys must not contradict each other. */
static __always_inline u32 begin_task(const struct callable_key keys[2])
{
	u32 cause = take_task(&keys[0]), whole = take_task(&keys[1]);

	if (cause == CAUSE_NONE)
		return CAUSE_UNKNOWN;
	if (whole == CAUSE_NONE || whole == cause)
		return cause;
	return cause == CAUSE_UNKNOWN ? whole : CAUSE_UNKNOWN;
}

/* The cause of a task that the current thread hands over: that of the task that it runs itself, or this call. */
static __always_inline u32 cause_of_task(struct pt_regs *ctx, struct image *image)
{
	u64 pid_tgid = bpf_get_current_pid_tgid(), own = own_pid_tgid(pid_tgid);
	struct handing_thread *thread = bpf_task_storage_get(&handing_threads, bpf_get_current_task_btf(), 0, 0);
	struct handover_record record = { .type = RECORD_TASK, .image = image->id };

	if (thread && thread->image == image->id && thread->node)
		return thread->node;
	record.time = bpf_ktime_get_ns();
	record.pid = own >> 32;
	record.tid = own;
	record.cause = cause_of(image);
	take_caller(ctx, image, pid_tgid, record.time, &record.stack, &record.python);
	return sent_cause(&record, CAUSE_UNKNOWN);
}

/* At the entry of the function that takes a task: its second argument, after the pool. */
static __always_inline int task_handed(struct pt_regs *ctx)
{
	struct image *image = image_of(bpf_get_current_pid_tgid() >> 32);
	struct callable_key keys[2] = {};
	u32 cause;

	if (!image || !read_task(keys, image, PT_REGS_PARM2(ctx)))
		return 0;
	report_tasks(image);
	cause = cause_of_task(ctx, image);
	add_task(&keys[0], cause);
	add_task(&keys[1], cause);
	return 0;
}

/*
 * The function that an instruction calls: its address is in a register, or in memory at a distance from that. Volatile: see
 * take_registers.
 */
static __always_inline u64 called_function(const volatile struct pt_regs *ctx, u64 call)
{
	u64 value = 0;

	switch (call & CALL_REGISTER) {
#define PICK(number, name)                                                                                                 \
	case number:                                                                                                       \
		value = ctx->name;                                                                                         \
		break;
		REGISTERS(PICK)
#undef PICK
	}
	if (call & CALL_MEMORY && bpf_probe_read_user(&value, sizeof(value), (void *)(value + (s32)(call >> 32))))
		return 0;
	return value;
}

/* At an instruction that calls a task, or another function: the first argument of a task is its state. */
static __always_inline int task_begun(struct pt_regs *ctx)
{
	u64 call = bpf_get_attach_cookie(ctx), function = called_function(ctx, call);
	struct image *image = image_of(bpf_get_current_pid_tgid() >> 32);
	struct handing_thread *thread = image ? handing_thread(image) : 0;
	struct callable_key keys[2] = {};
	u32 cause;

	if (!image || !thread || !read_task(keys, image, PT_REGS_PARM1(ctx)) || keys[0].invoker != function)
		return 0;
	cause = begin_task(keys);
	if (!(call & CALL_AT_ONCE))
		thread->node = cause;
	return 0;
}

static __always_inline int measured(struct pt_regs *ctx, int (*program)(struct pt_regs *))
{
	u64 begun = cost_begin();

	program(ctx);
	cost_end(COST_HIT, begun);
	return 0;
}

SEC("?uprobe.multi")
int hand_over_multi(struct pt_regs *ctx)
{
	return measured(ctx, hand_over);
}

SEC("?uprobe")
int hand_over_single(struct pt_regs *ctx)
{
	return measured(ctx, hand_over);
}

SEC("?uprobe.multi")
int hand_back_multi(struct pt_regs *ctx)
{
	return measured(ctx, hand_back);
}

SEC("?uprobe")
int hand_back_single(struct pt_regs *ctx)
{
	return measured(ctx, hand_back);
}

SEC("?uprobe.multi")
int handed_node_multi(struct pt_regs *ctx)
{
	return measured(ctx, handed_node);
}

SEC("?uprobe")
int handed_node_single(struct pt_regs *ctx)
{
	return measured(ctx, handed_node);
}

SEC("?uprobe.multi")
int node_made_multi(struct pt_regs *ctx)
{
	return measured(ctx, node_made);
}

SEC("?uprobe")
int node_made_single(struct pt_regs *ctx)
{
	return measured(ctx, node_made);
}

SEC("?uprobe.multi")
int task_handed_multi(struct pt_regs *ctx)
{
	return measured(ctx, task_handed);
}

SEC("?uprobe")
int task_handed_single(struct pt_regs *ctx)
{
	return measured(ctx, task_handed);
}

SEC("?uprobe.multi")
int task_begun_multi(struct pt_regs *ctx)
{
	return measured(ctx, task_begun);
}

SEC("?uprobe")
int task_begun_single(struct pt_regs *ctx)
{
	return measured(ctx, task_begun);
}

#endif
