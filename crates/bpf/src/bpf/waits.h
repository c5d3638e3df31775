/* SPDX-License-Identifier: MIT */
/*
 * Time off the CPU (`record --off-cpu`), summed by reason and call stack in the map of hits: each wait is a hit whose
 * weight is its duration.
 *
 * The stack is taken when a thread leaves the CPU, while its memory can still be read, and added when the thread runs
 * again. Waits shorter than `shortest_wait` are summed without a stack. Other waits of threads that launch GPU work are
 * also sent with their times.
 *
 * The reason is the system call that the thread is in; if the stack has a CUDA call that waits, the export gives the
 * GPU as the reason instead. A thread that left the CPU although it could have run is waiting for a CPU. At the end of
 * the recording, threads that still wait are added too.
 */
#ifndef WARPSCOPE_WAITS_H
#define WARPSCOPE_WAITS_H

#include "hits.h"
#include "wait_reason.h"

/* Set before loading, in nanoseconds. */
const volatile u64 shortest_wait = 0;

/* A thread that is off the CPU. */
struct waiting_thread {
	u64 since; /* 0 if it runs */
	struct hit_key key;
	u32 pid;
	u32 tid;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct waiting_thread);
} waiting_threads SEC(".maps");

/* Interrupts are disabled during a context switch, so one scratch memory per CPU is enough. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} wait_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct python_scratch);
} wait_python SEC(".maps");

static __always_inline u64 python_of_current(struct python_process *process, struct python_scratch *scratch, u32 image,
					     u32 pid, u64 now)
{
	struct python_thread *thread =
		bpf_task_storage_get(&hit_threads, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!scratch || !thread) {
		count_loss(LOSS_WALK);
		return 0;
	}
	scratch->image = image;
	scratch->pid = pid;
	scratch->time = now;
	return take_python(scratch, thread, 0, process);
}

/* Takes the stack of the current thread, which is in the kernel. */
static __always_inline void take_user_stack(void *ctx, struct scratch *scratch, struct python_scratch *python_scratch,
					    struct image *image, u64 now, u64 *native, u64 *python)
{
	u32 image_id = image->id;
	u64 pid_tgid = bpf_get_current_pid_tgid();
	struct python_process *process;

	take_user_registers(&scratch->registers);
	*native = take_stack(ctx, scratch, 0, image, pid_tgid, now, false);
	process = bpf_map_lookup_elem(&python_processes, &image_id);
	*python = process ? python_of_current(process, python_scratch, image_id, pid_tgid >> 32, now) : 0;
}

/* The same for a thread that leaves the CPU. */
static __always_inline void take_wait_stack(void *ctx, struct scratch *scratch, struct image *image, u64 now, u64 *native,
					    u64 *python)
{
	u32 zero = 0;

	take_user_stack(ctx, scratch, bpf_map_lookup_elem(&wait_python, &zero), image, now, native, python);
}

/* The current thread leaves the CPU. */
static __always_inline void begin_wait(void *ctx, struct task_struct *task, struct image *image, bool preempted, u64 now)
{
	u32 zero = 0, image_id = image->id, state = BPF_CORE_READ(task, __state);
	struct scratch *scratch = bpf_map_lookup_elem(&wait_scratch, &zero);
	struct range *range = bpf_map_lookup_elem(&mapping_ranges, &image_id);
	u64 pid_tgid = bpf_get_current_pid_tgid();
	struct waiting_thread *waiting;
	struct pt_regs *user;

	if (!scratch || !has_stack(task, state))
		return;
	waiting = bpf_task_storage_get(&waiting_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!waiting) {
		count_loss(LOSS_HIT);
		return;
	}
	/* It was scheduled again unseen. */
	if (waiting->since)
		count_loss(LOSS_SWITCH);
	user = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	waiting->pid = pid_tgid >> 32;
	waiting->tid = (u32)own_pid_tgid(pid_tgid);
	waiting->since = now;
	waiting->key.image = image_id;
	waiting->key.generation = range ? range->generation : 0;
	waiting->key.point = preempted || !state ? WAIT_CPU : wait_reason(user->orig_ax);
	take_wait_stack(ctx, scratch, image, now, &waiting->key.stack, &waiting->key.python);
}

static __always_inline void send_wait(const struct waiting_thread *waiting, u64 now)
{
	struct wait_record record = {
		.type = RECORD_WAIT,
		.tid = waiting->tid,
		.time = waiting->since,
		.end = now,
		.key = waiting->key,
	};

	send(&record, sizeof(record), wake_seldom(), LOSS_WAIT);
}

/* A thread runs again. */
static __always_inline void end_wait(struct task_struct *task, struct waiting_thread *waiting, u64 now)
{
	struct hit_record record = { .type = RECORD_HIT };
	u64 took = now - waiting->since;

	record.pid = waiting->pid;
	record.time = waiting->since;
	record.key = waiting->key;
	if (took < shortest_wait) {
		record.key.point = WAIT_SHORT;
		record.key.stack = 0;
		record.key.python = 0;
	} else if (is_feeder(task)) {
		send_wait(waiting, now);
	}
	waiting->since = 0;
	add_hit(&record, took, true);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(off_cpu, bool preempted, struct task_struct *from, struct task_struct *to)
{
	u64 begun = cost_begin(), now = bpf_ktime_get_ns();
	u32 pid = BPF_CORE_READ(from, tgid);
	struct image *image = pid ? image_of(pid) : 0;
	struct waiting_thread *waiting = bpf_task_storage_get(&waiting_threads, to, 0, 0);

	if (waiting && waiting->since)
		end_wait(to, waiting, now);
	else if (waiting && image_of(BPF_CORE_READ(to, tgid)))
		count_loss(LOSS_SWITCH);
	if (image)
		begin_wait(ctx, from, image, preempted, now);
	if (image || waiting)
		cost_end(COST_HIT, begun);
	return 0;
}

/* At the end of a recording: adds the waits of threads that still wait. */
SEC("iter/task")
int off_cpu_end(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct waiting_thread *waiting;

	if (!task)
		return 0;
	waiting = bpf_task_storage_get(&waiting_threads, task, 0, 0);
	if (waiting && waiting->since)
		end_wait(task, waiting, bpf_ktime_get_ns());
	return 0;
}

#endif
