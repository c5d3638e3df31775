/* SPDX-License-Identifier: MIT */
/* The sampler: runs periodically on every CPU and records what followed processes do there. */
#ifndef WARPSCOPE_SAMPLE_H
#define WARPSCOPE_SAMPLE_H

#include "cost.h"
#include "handover_state.h"
#include "python.h"
#include "registers.h"
#include "stack.h"

/* Interrupts are disabled while the sampler runs, so one scratch memory per CPU is enough. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} sample_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct python_scratch);
} sample_python SEC(".maps");

/*
 * Volatile prevents the two branches from being merged into loads from a computed address, which the context does not
 * allow.
 */
static __always_inline void take_registers(const volatile struct bpf_perf_event_data *ctx, struct registers *registers)
{
	/* Read field by field: a copy would be a third of the BPF stack. */
	struct pt_regs *user;

	if (ctx->regs.cs & 3) {
		registers->ip = ctx->regs.ip;
#define TAKE(number, name) registers->general[number] = ctx->regs.name;
		REGISTERS(TAKE)
#undef TAKE
		return;
	}
	/* In the kernel, the user registers are those saved at the entry. */
	user = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	registers->ip = user->ip;
#define TAKE(number, name) registers->general[number] = user->name;
	REGISTERS(TAKE)
#undef TAKE
}

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct python_thread);
} sample_threads SEC(".maps");

static __always_inline u64 sampled_python(struct python_process *process, const struct sample_record *record)
{
	u32 zero = 0;
	struct python_scratch *scratch = bpf_map_lookup_elem(&sample_python, &zero);
	struct python_thread *thread =
		bpf_task_storage_get(&sample_threads, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!scratch || !thread) {
		count_loss(LOSS_WALK);
		return 0;
	}
	scratch->image = record->image;
	scratch->pid = record->pid;
	scratch->time = record->time;
	return take_python(scratch, thread, 0, process);
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u32 tgid = pid_tgid >> 32;
	struct sample_record record = {
		.type = RECORD_SAMPLE,
		.cpu = bpf_get_smp_processor_id(),
	};
	struct image *image;
	struct scratch *scratch;
	struct python_process *process;
	u64 own;
	u32 zero = 0;

	if (!tgid)
		return 0;
	image = image_of(tgid);
	if (!image)
		return 0;
	scratch = bpf_map_lookup_elem(&sample_scratch, &zero);
	if (!scratch)
		return 0;
	record.time = bpf_ktime_get_ns();
	record.image = image->id;
	own = own_pid_tgid(pid_tgid);
	record.pid = own >> 32;
	record.tid = own;
	record.cause = cause_of(image);
	take_registers(ctx, &scratch->registers);
	record.stack = take_stack(ctx, scratch, 0, image, pid_tgid, record.time, true);
	process = bpf_map_lookup_elem(&python_processes, &record.image);
	if (process)
		record.python = sampled_python(process, &record);
	send(&record, sizeof(record), wake_seldom(), LOSS_SAMPLE);
	cost_add(COST_SAMPLE, record.time, 1);
	return 0;
}

#endif
