/* SPDX-License-Identifier: MIT */
/*
 * Who started a thread of a Python process: the stack of the thread that created it, until the thread ends.
 *
 * The tracepoint runs on the creating thread before the new one runs, so the record precedes all records of the new thread.
 */
#ifndef WARPSCOPE_THREADS_H
#define WARPSCOPE_THREADS_H

#include "handover_state.h"
#include "waits.h"

/* The kernel does not run the program again on a CPU where it is running, so one scratch memory per CPU is enough. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} start_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct python_scratch);
} start_python SEC(".maps");

SEC("tp_btf/sched_process_fork")
int BPF_PROG(thread_start, struct task_struct *parent, struct task_struct *child)
{
	u32 zero = 0, tgid = BPF_CORE_READ(parent, tgid), image_id;
	struct image *image = image_of(tgid);
	struct scratch *scratch = bpf_map_lookup_elem(&start_scratch, &zero);
	struct python_scratch *python = bpf_map_lookup_elem(&start_python, &zero);
	struct start_record record = { .type = RECORD_START };

	if (!image || tgid != (u32)BPF_CORE_READ(child, tgid) || !scratch || !python)
		return 0;
	image_id = image->id;
	if (!bpf_map_lookup_elem(&python_processes, &image_id))
		return 0;
	record.image = image_id;
	record.time = bpf_ktime_get_ns();
	record.tid = own_tid(child);
	record.creator = (u32)own_pid_tgid(bpf_get_current_pid_tgid());
	record.cause = cause_of(image);
	take_user_stack(ctx, scratch, python, image, record.time, &record.stack, &record.python);
	send(&record, sizeof(record), wake_seldom(), LOSS_STACK);
	return 0;
}

/* Runs before the thread's id can be used again, so the record precedes that of the next thread with this id. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(thread_end, struct task_struct *task)
{
	struct image *image = image_of(BPF_CORE_READ(task, tgid));
	struct exit_record record = { .type = RECORD_THREAD_END };

	if (!image)
		return 0;
	record.image = image->id;
	if (!bpf_map_lookup_elem(&python_processes, &record.image))
		return 0;
	record.time = bpf_ktime_get_ns();
	record.pid = own_tid(task);
	send(&record, sizeof(record), wake_seldom(), LOSS_PROCESS);
	return 0;
}

#endif
