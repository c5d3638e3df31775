/* SPDX-License-Identifier: MIT */
/*
 * Process ids in the recorder's pid namespace. The kernel's mapping records, socket credentials and /proc use the
 * recorder's ids, so records use them too. Maps are keyed by ids of the initial namespace. The injected library sends the ids
 * that its process knows: records of threads have both (inner_tid).
 */
#ifndef WARPSCOPE_NAMESPACE_H
#define WARPSCOPE_NAMESPACE_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* The recorder's id in the initial namespace, and its pid namespace: level (0 is the initial one) and address. */
u32 recorder_tgid = 0;
u32 recorder_level = 0;
u64 recorder_namespace = 0;

/* The deepest nesting of namespaces (MAX_PID_NS_LEVEL). */
#define MOST_LEVELS 32

/* The entry of an id for one namespace level. */
static __always_inline struct upid *id_at(struct pid *pid, u32 level)
{
	return (void *)pid + bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid);
}

/* The id in the recorder's namespace; 0 if it has none there. */
static __always_inline u32 own_number(struct pid *pid)
{
	u32 level = recorder_level;
	struct upid *id;

	if (!pid || level >= MOST_LEVELS || BPF_CORE_READ(pid, level) < level)
		return 0;
	id = id_at(pid, level);
	return (u64)BPF_CORE_READ(id, ns) == recorder_namespace ? BPF_CORE_READ(id, nr) : 0;
}

static __always_inline u32 own_tgid(struct task_struct *task)
{
	if (!recorder_level)
		return BPF_CORE_READ(task, tgid);
	return own_number(BPF_CORE_READ(task, group_leader, thread_pid));
}

static __always_inline u32 own_tid(struct task_struct *task)
{
	if (!recorder_level)
		return BPF_CORE_READ(task, pid);
	return own_number(BPF_CORE_READ(task, thread_pid));
}

/* The id that a thread knows itself by, if its pid namespace is not the recorder's; otherwise 0. */
static __always_inline u32 inner_tid(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	u32 level = pid ? BPF_CORE_READ(pid, level) : MOST_LEVELS;
	struct upid *id;

	if (level >= MOST_LEVELS)
		return 0;
	id = id_at(pid, level);
	return (u64)BPF_CORE_READ(id, ns) == recorder_namespace ? 0 : BPF_CORE_READ(id, nr);
}

/* Like bpf_get_current_pid_tgid(), whose result is passed in. */
static __always_inline u64 own_pid_tgid(u64 pid_tgid)
{
	struct task_struct *task;

	if (!recorder_level)
		return pid_tgid;
	task = bpf_get_current_task_btf();
	return (u64)own_tgid(task) << 32 | own_tid(task);
}

/* Run once by the recorder itself, before anything is attached. */
SEC("raw_tp")
int find_recorder(void *ctx)
{
	struct pid *pid = BPF_CORE_READ(bpf_get_current_task_btf(), thread_pid);
	u32 level = BPF_CORE_READ(pid, level);
	struct upid *id;

	recorder_tgid = bpf_get_current_pid_tgid() >> 32;
	if (level >= MOST_LEVELS)
		return 0;
	id = id_at(pid, level);
	recorder_namespace = (u64)BPF_CORE_READ(id, ns);
	recorder_level = level;
	return 0;
}

/* Every process in the recorder's namespace: its id there, and in the initial namespace. */
SEC("iter/task")
int list_processes(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u32 ids[2];

	if (!task || BPF_CORE_READ(task, pid) != BPF_CORE_READ(task, tgid))
		return 0;
	ids[0] = own_tgid(task);
	ids[1] = BPF_CORE_READ(task, tgid);
	bpf_seq_write(ctx->meta->seq, ids, sizeof(ids));
	return 0;
}

#endif
