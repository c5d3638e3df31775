/* SPDX-License-Identifier: MIT */
/*
 * The launch marker: a probe on the function that the injected library calls at the start of a launch, unless the library
 * knows everything that is found out here (wire::launches).
 *
 * A uprobe program can be preempted, and another thread may then run it on the same CPU. So the scratch memory is per
 * thread, not per CPU.
 *
 * There are two programs, for `uprobe.multi`, which is tried first, and for a plain uprobe: neither supports the
 * other's link type. No kernel frames are taken: the thread has just trapped, and its kernel stack is the trap itself.
 * CPU samples have kernel frames, because there they show what the program is doing.
 */
#ifndef WARPSCOPE_LAUNCH_H
#define WARPSCOPE_LAUNCH_H

#include "cost.h"
#include "feeders.h"
#include "handover_state.h"
#include "open_calls.h"
#include "python.h"
#include "stack.h"

/* Set before loading: calls are traced, and a launch uses the stack of its enclosing call. */
const volatile bool calls_traced = false;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct scratch);
} launch_scratch SEC(".maps");

struct launch_python {
	struct python_thread thread;
	struct python_scratch scratch;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct launch_python);
} launch_python SEC(".maps");

/*
 * Takes the Python stack of the current thread, sends it if it is new, and returns its id; 0 if there is none. `hash` is
 * that of the thread's frames, as the thread itself computed it, or 0; `*known` says whether it was enough. `*quick` is the hash that was
 * computed here or confirmed, 0 if there is none.
 */
static __always_inline u64 take_python_of_thread(u32 image, u32 pid, u64 time, u64 hash, bool *known, u64 *quick)
{
	struct python_process *process = bpf_map_lookup_elem(&python_processes, &image);
	struct task_struct *task = bpf_get_current_task_btf();
	struct launch_python *python;
	struct python_cache *cache;
	u64 id;

	if (!process)
		return 0;
	cache = bpf_task_storage_get(&python_caches, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	id = cache && hash ? recall_python(cache, hash) : 0;
	*known = id != 0;
	*quick = hash;
	if (id)
		return id;
	*quick = 0;
	python = bpf_task_storage_get(&launch_python, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!python) {
		count_loss(LOSS_WALK);
		return 0;
	}
	python->scratch.image = image;
	python->scratch.pid = pid;
	python->scratch.time = time;
	id = take_python(&python->scratch, &python->thread, cache, process);
	*quick = python->scratch.quick;
	return id;
}

/*
 * Takes the native stack of the current thread from an instruction and stack pointer on, sends it if it is new, and
 * returns its id. At a function's first instruction, and after its return, only callee-saved registers are needed to find
 * a frame.
 */
static __always_inline u64 take_native(struct pt_regs *ctx, u64 ip, u64 sp, struct image *image, u64 pid_tgid, u64 time)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct scratch *scratch = bpf_task_storage_get(&launch_scratch, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* If this allocation fails, the thread has no cache; everything else works. */
	struct walk_cache *cache = bpf_task_storage_get(&walk_caches, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!scratch) {
		count_loss(LOSS_WALK);
		return 0;
	}
	scratch->registers.ip = ip;
	scratch->registers.general[REGISTER_RSP] = sp;
	scratch->registers.general[REGISTER_RBP] = PT_REGS_FP(ctx);
	scratch->registers.general[REGISTER_RBX] = ctx->bx;
	return take_stack(ctx, scratch, cache, image, pid_tgid, time, false);
}

/* Takes the native and the Python stack. */
static __always_inline void take_both(struct pt_regs *ctx, u64 ip, u64 sp, struct image *image, u64 pid_tgid, u64 time,
				      u64 *native, u64 *python)
{
	bool known;
	u64 quick;

	*native = take_native(ctx, ip, sp, image, pid_tgid, time);
	*python = take_python_of_thread(image->id, pid_tgid >> 32, time, 0, &known, &quick);
}

/* If the stack was just walked, sends the thread what it needs to recognise it. */
static __always_inline void offer_memo(const struct launch_record *record)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct scratch *scratch = bpf_task_storage_get(&launch_scratch, task, 0, 0);
	struct walk_cache *cache = bpf_task_storage_get(&walk_caches, task, 0, 0);
	struct deep_memo_record *deep;
	struct memo *memo;

	if (!scratch || !cache || !scratch->remembered)
		return;
	memo = &cache->memos[cache->last & (MEMOS - 1)];
	if (memo->count != MEMO_FULL) {
		send_memo(memo, record->image, record->session);
		return;
	}
	deep = bpf_task_storage_get(&deep_memos, task, 0, 0);
	if (deep)
		send_deep(deep, memo, record->image, record->session, record->stack, scratch->sp);
}

/* Takes both stacks of a launch. The thread may have recognised one of them or both (wire::known). */
static __always_inline void take_launch(struct pt_regs *ctx, struct image *image, u64 pid_tgid, struct launch_record *record)
{
	bool known = false;
	u64 quick = 0;

	record->stack = PT_REGS_PARM4(ctx);
	if (record->stack) {
		record->cpu |= LAUNCH_KNOWN;
	} else {
		record->stack = take_native(ctx, PT_REGS_IP(ctx), PT_REGS_SP(ctx), image, pid_tgid, record->time);
		offer_memo(record);
	}
	record->python = take_python_of_thread(record->image, record->pid, record->time, PT_REGS_PARM5(ctx), &known, &quick);
	record->python_hash = quick;
	if (known)
		record->cpu |= LAUNCH_PYTHON_KNOWN;
}

static __always_inline int launch(struct pt_regs *ctx)
{
	u64 begun = cost_begin();
	u64 pid_tgid = bpf_get_current_pid_tgid(), own = own_pid_tgid(pid_tgid);
	struct launch_record record = {
		.type = RECORD_LAUNCH,
		.pid = own >> 32,
		.tid = (u32)own,
		.time = bpf_ktime_get_ns(),
		.cpu = bpf_get_smp_processor_id(),
		.correlation = (u32)PT_REGS_PARM1(ctx),
		.previous = PT_REGS_PARM1(ctx) >> 32,
		.took = ctx->r9,
		.work = PT_REGS_PARM2(ctx),
		.session = PT_REGS_PARM3(ctx),
	};
	struct image *image = image_of(pid_tgid >> 32);
	struct image none = {};

	if (!image)
		image = &none;
	record.image = image->id;
	if (record.work >= WORK_REFUSAL)
		; /* no launch: the injected library reports why it does nothing */
	else if (calls_traced && record.work == WORK_NODE)
		goto end; /* traces show graphs by their launches */
	else if (calls_traced)
		tag_call(&record);
	else {
		record.cause = cause_of(image);
		take_launch(ctx, image, pid_tgid, &record);
	}
	note_feeder();
	send(&record, sizeof(record), wake_seldom(), LOSS_LAUNCH);
end:
	cost_end(COST_LAUNCH, begun);
	return 0;
}

/* Two programs for one probe: a multi-uprobe program cannot be attached with a plain link, and vice versa. */
SEC("uprobe.multi")
int launch_multi(struct pt_regs *ctx)
{
	return launch(ctx);
}

SEC("uprobe")
int launch_single(struct pt_regs *ctx)
{
	return launch(ctx);
}

#endif
