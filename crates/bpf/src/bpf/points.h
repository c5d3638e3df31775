/* SPDX-License-Identifier: MIT */
/* The scheduler, and tracepoints by name. */
#ifndef WARPSCOPE_POINTS_H
#define WARPSCOPE_POINTS_H

#include "calls.h"
#include "open_calls.h"
#include "waits.h"

/* Set before loading: report tracepoints of every process, not only of followed ones. */
const volatile bool points_of_all = false;

/*
 * A followed thread is scheduled again: reports when it left the CPU, for how long and, on request, its stack.
 *
 * Single switches have been missing while other programs were attached to the same tracepoint or removed from it. They are
 * counted: a thread leaves the CPU twice in a row, or is scheduled twice.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(thread_switch, bool preempted, struct task_struct *from, struct task_struct *to)
{
	u32 pid = BPF_CORE_READ(from, tgid);
	u64 now = bpf_ktime_get_ns();
	struct thread_calls *calls;
	struct image *image = pid ? image_of(pid) : 0;

	if (image) {
		calls = bpf_task_storage_get(&thread_calls, from, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (calls) {
			if (calls->switched_out)
				count_loss(LOSS_SWITCH);
			calls->switches++;
			calls->switched_out = now;
			calls->state = BPF_CORE_READ(from, __state);
			calls->preempted = preempted;
			calls->wait_stack = 0;
			calls->wait_python = 0;
			if (call_stacks && has_stack(from, calls->state)) {
				u32 zero = 0;
				struct scratch *scratch = bpf_map_lookup_elem(&wait_scratch, &zero);

				if (scratch)
					take_wait_stack(ctx, scratch, image, now, &calls->wait_stack, &calls->wait_python);
			}
		}
	}
	pid = BPF_CORE_READ(to, tgid);
	calls = pid ? bpf_task_storage_get(&thread_calls, to, 0, 0) : 0;
	if (!calls)
		return 0;
	image = image_of(pid);
	if (!calls->switched_out) {
		if (calls->switches && image)
			count_loss(LOSS_SWITCH);
		return 0;
	}
	if (image) {
		struct switch_record record = {
			.type = RECORD_SWITCH,
			.image = image->id,
			.out = calls->switched_out,
			.in = now,
			.around = innermost(calls),
			.stack = calls->wait_stack,
			.python = calls->wait_python,
			.pid = own_tgid(to),
			.tid = own_tid(to),
			.cpu = bpf_get_smp_processor_id(),
			.depth = depth_of(calls),
			.preempted = calls->preempted || !calls->state,
			.state = calls->state,
		};

		/* No wake-up: the reader cannot be woken during a context switch. */
		send(&record, sizeof(record), BPF_RB_NO_WAKEUP, LOSS_CALL);
	}
	calls->switched_out = 0;
	return 0;
}

SEC("tp")
int point(void *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid(), own = own_pid_tgid(pid_tgid);
	struct image *image = image_of(pid_tgid >> 32);
	struct point_record record = {
		.type = RECORD_POINT,
		.image = image ? image->id : 0,
		.time = bpf_ktime_get_ns(),
		.function = bpf_get_attach_cookie(ctx),
		.pid = own >> 32,
		.tid = (u32)own,
		.cpu = bpf_get_smp_processor_id(),
	};

	struct thread_calls *calls;

	if (!image && !points_of_all)
		return 0;
	calls = bpf_task_storage_get(&thread_calls, bpf_get_current_task_btf(), 0, 0);
	if (calls) {
		record.around = innermost(calls);
		record.depth = depth_of(calls);
	}
	bpf_probe_read_kernel(record.bytes, sizeof(record.bytes), ctx);
	send(&record, sizeof(record), BPF_RB_NO_WAKEUP, LOSS_CALL);
	return 0;
}

#endif
