/* SPDX-License-Identifier: MIT */
/*
 * The launch marker: a probe on the function that the injected library calls at the start of every launch.
 *
 * A probe program can be preempted in the middle, and another thread may then run it on the same CPU: its scratch
 * memory belongs to the thread, not to the CPU.
 */
#include "python.h"
#include "stack.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct scratch);
} launch_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct python_scratch);
} launch_python SEC(".maps");

static __always_inline int launch(struct pt_regs *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	struct launch_record record = {
		.type = RECORD_LAUNCH,
		.pid = pid_tgid >> 32,
		.tid = (u32)pid_tgid,
		.time = bpf_ktime_get_ns(),
		.cpu = bpf_get_smp_processor_id(),
		.correlation = PT_REGS_PARM1(ctx),
		.work = PT_REGS_PARM2(ctx),
		.session = PT_REGS_PARM3(ctx),
	};
	struct image *image = image_of(record.pid);
	struct image none = {};
	struct scratch *scratch;
	struct memory *memory;

	if (!image)
		image = &none;
	record.image = image->id;
	scratch = bpf_task_storage_get(&launch_scratch, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* Without memory for it a thread does not remember; all else works. */
	memory = bpf_task_storage_get(&memories, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (scratch) {
		/* At a function's first instruction no other register finds a frame. */
		scratch->registers.ip = PT_REGS_IP(ctx);
		scratch->registers.general[REGISTER_RSP] = PT_REGS_SP(ctx);
		scratch->registers.general[REGISTER_RBP] = PT_REGS_FP(ctx);
		scratch->registers.general[REGISTER_RBX] = ctx->bx;
		record.stack = take_stack(ctx, scratch, memory, image, pid_tgid, record.time, false);
	} else {
		count_loss(LOSS_WALK);
	}
	if (bpf_map_lookup_elem(&python_processes, &record.image)) {
		struct task_struct *task = bpf_get_current_task_btf();
		struct python_scratch *python = bpf_task_storage_get(&launch_python, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		struct python_thread *thread = bpf_task_storage_get(&python_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

		if (python && thread)
			record.python = take_python(python, thread, record.image, record.pid, record.time);
	}
	send(&record, sizeof(record), wake_seldom(), LOSS_LAUNCH);
	return 0;
}

/* Two programs for one probe: a multi-uprobe program refuses a plain link, and the reverse. */
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
