/* SPDX-License-Identifier: MIT */
/*
 * The launch marker: a probe on the function that the injected library calls at the start of every launch.
 *
 * A uprobe program can be preempted, and another thread may then run it on the same CPU. So the scratch memory is per
 * thread, not per CPU.
 */
#ifndef WARPSCOPE_LAUNCH_H
#define WARPSCOPE_LAUNCH_H

#include "cost.h"
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

static __always_inline u64 python_of_launch(struct python_process *process, u32 image, u32 pid, u64 time)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct launch_python *python = bpf_task_storage_get(&launch_python, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct python_cache *cache = bpf_task_storage_get(&python_caches, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!python) {
		count_loss(LOSS_WALK);
		return 0;
	}
	python->scratch.image = image;
	python->scratch.pid = pid;
	python->scratch.time = time;
	return take_python(&python->scratch, &python->thread, cache, process);
}

/*
 * Takes the native and the Python stack of the current thread from an instruction and stack pointer on, and sends each
 * if it is new. At a function's first instruction, and after its return, only callee-saved registers are needed to find
 * a frame.
 */
static __always_inline void take_both(struct pt_regs *ctx, u64 ip, u64 sp, struct image *image, u64 pid_tgid, u64 time,
				      u64 *native, u64 *python)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct scratch *scratch = bpf_task_storage_get(&launch_scratch, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* If this allocation fails, the thread has no cache; everything else works. */
	struct walk_cache *cache = bpf_task_storage_get(&walk_caches, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct python_process *process;
	u32 image_id = image->id;

	if (scratch) {
		scratch->registers.ip = ip;
		scratch->registers.general[REGISTER_RSP] = sp;
		scratch->registers.general[REGISTER_RBP] = PT_REGS_FP(ctx);
		scratch->registers.general[REGISTER_RBX] = ctx->bx;
		*native = take_stack(ctx, scratch, cache, image, pid_tgid, time, false);
	} else {
		count_loss(LOSS_WALK);
	}
	process = bpf_map_lookup_elem(&python_processes, &image_id);
	if (process)
		*python = python_of_launch(process, image_id, pid_tgid >> 32, time);
}

/* If the stack was just walked, sends the thread what it needs to recognise it. */
static __always_inline void offer_memo(const struct launch_record *record)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct scratch *scratch = bpf_task_storage_get(&launch_scratch, task, 0, 0);
	struct walk_cache *cache = bpf_task_storage_get(&walk_caches, task, 0, 0);

	if (scratch && cache && scratch->remembered)
		send_memo(&cache->memos[cache->last & (MEMOS - 1)], record->image, record->session);
}

/* The thread recognised its native stack: only the Python part is taken. */
static __always_inline void take_known(u64 stack, struct launch_record *record)
{
	struct python_process *process = bpf_map_lookup_elem(&python_processes, &record->image);

	record->stack = stack;
	record->cpu |= LAUNCH_KNOWN;
	if (process)
		record->python = python_of_launch(process, record->image, record->pid, record->time);
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
		.correlation = PT_REGS_PARM1(ctx),
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
	else if (calls_traced)
		tag_call(&record);
	else if (PT_REGS_PARM4(ctx))
		take_known(PT_REGS_PARM4(ctx), &record);
	else {
		take_both(ctx, PT_REGS_IP(ctx), PT_REGS_SP(ctx), image, pid_tgid, record.time, &record.stack, &record.python);
		offer_memo(&record);
	}
	send(&record, sizeof(record), wake_seldom(), LOSS_LAUNCH);
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
