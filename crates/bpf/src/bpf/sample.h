/* SPDX-License-Identifier: MIT */
/* The sampler: runs on every CPU some times a second and notes what the followed processes do there. */
#include "python.h"
#include "stack.h"

/* Interrupts are off while the sampler runs, so one scratch memory a CPU is enough. */
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

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	struct sample_record record = {
		.type = RECORD_SAMPLE,
		.pid = pid_tgid >> 32,
		.tid = (u32)pid_tgid,
		.cpu = bpf_get_smp_processor_id(),
	};
	struct image *image;
	struct scratch *scratch;
	struct registers regs = {};
	u32 zero = 0;

	if (!record.pid)
		return 0;
	image = image_of(record.pid);
	if (!image)
		return 0;
	scratch = bpf_map_lookup_elem(&sample_scratch, &zero);
	if (!scratch)
		return 0;
	record.time = bpf_ktime_get_ns();
	record.image = image->id;
	/* In the kernel the user's registers are those saved on the way in. */
	if (ctx->regs.cs & 3) {
		regs.ip = ctx->regs.ip;
		regs.sp = ctx->regs.sp;
		regs.bp = ctx->regs.bp;
	} else {
		struct pt_regs *user = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

		bpf_probe_read_kernel(&regs.ip, sizeof(regs.ip), &user->ip);
		bpf_probe_read_kernel(&regs.sp, sizeof(regs.sp), &user->sp);
		bpf_probe_read_kernel(&regs.bp, sizeof(regs.bp), &user->bp);
	}
	record.stack = take_stack(ctx, &regs, scratch, 0, image, pid_tgid, record.time, true);
	if (bpf_map_lookup_elem(&python_processes, &record.image)) {
		struct python_scratch *python = bpf_map_lookup_elem(&sample_python, &zero);
		struct python_thread *thread =
			bpf_task_storage_get(&python_threads, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

		if (python && thread)
			record.python = take_python(python, thread, record.image, record.pid, record.time);
	}
	send(&record, sizeof(record), wake_seldom(), LOSS_SAMPLE);
	return 0;
}
