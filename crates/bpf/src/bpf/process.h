/* SPDX-License-Identifier: MIT */
/*
 * Processes: children of followed processes are followed from their first instruction. Every fork and exec gives a
 * process a new image id, so that nothing is attributed to a program that has been replaced.
 *
 * `record` follows children from their first instruction: before it forks, it adds itself to the map of followed
 * processes as "children only", and removes itself afterwards.
 */
#ifndef WARPSCOPE_PROCESS_H
#define WARPSCOPE_PROCESS_H

#include "handover_state.h"
#include "open_calls.h"
#include "python.h"
#include "repeated.h"
#include "stack.h"

static __always_inline void send_thread(u32 image, struct task_struct *task, const char *comm)
{
	struct thread_record record = {
		.type = RECORD_THREAD,
		.image = image,
		.tid = own_tid(task),
		.inner = inner_tid(task),
		.time = bpf_ktime_get_ns(),
	};

	bpf_probe_read_kernel_str(record.comm, sizeof(record.comm), comm);
	send(&record, sizeof(record), wake_seldom(), LOSS_PROCESS);
}

static __always_inline void new_image(struct task_struct *task, u32 parent, u32 origin)
{
	struct image image = {
		.id = __sync_fetch_and_add(&next_image, 1),
		/* A fork of the recorder is still the recorder, until it execs the command. */
		.children_only = origin == ORIGIN_FORK && !parent,
		.raw_left = MAX_RAW_STACKS,
		.memory = (u64)BPF_CORE_READ(task, mm),
	};
	u32 tgid = BPF_CORE_READ(task, tgid);
	struct process_record record = {
		.type = RECORD_PROCESS,
		.image = image.id,
		.parent = parent,
		.origin = origin,
		.time = bpf_ktime_get_ns(),
		.pid = own_tgid(task),
		.inner = inner_tid(BPF_CORE_READ(task, group_leader)),
	};

	if (origin == ORIGIN_FORK) {
		inherit_mappings(parent, image.id);
		inherit_python(parent, image.id);
	} else {
		declare_program(task, image.id);
		if (origin == ORIGIN_FOUND)
			inherit_python(tgid | PYTHON_LOADED, image.id);
	}
	begin_handed(image.id);
	/* Several threads may make the first call of a process at once: one creates the image, the others use it. */
	if (bpf_map_update_elem(&images, &tgid, &image, origin == ORIGIN_FOUND ? BPF_NOEXIST : BPF_ANY)) {
		if (origin != ORIGIN_FOUND || !bpf_map_lookup_elem(&images, &tgid))
			count_loss(LOSS_PROCESS);
		end_handed(image.id);
		return;
	}
	BPF_CORE_READ_STR_INTO(&record.comm, task, comm);
	send(&record, sizeof(record), 0, LOSS_PROCESS);
}

/* The program of a process that had loaded CUDA has ended. */
static __always_inline void end_loaded(u32 tgid)
{
	u32 key = tgid | PYTHON_LOADED;

	if (follow_all)
		bpf_map_delete_elem(&python_processes, &key);
}

static __always_inline void end_image(struct task_struct *task, u32 image)
{
	u32 tgid = BPF_CORE_READ(task, tgid);
	struct exit_record record = {
		.type = RECORD_EXIT,
		.image = image,
		.time = bpf_ktime_get_ns(),
		.pid = own_tgid(task),
	};

	bpf_map_delete_elem(&images, &tgid);
	end_handed(image);
	send(&record, sizeof(record), 0, LOSS_PROCESS);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = BPF_CORE_READ(parent, tgid), tgid = BPF_CORE_READ(child, tgid);
	struct image *image = bpf_map_lookup_elem(&images, &from);

	if (follow_all && from != tgid)
		inherit_python(from | PYTHON_LOADED, tgid | PYTHON_LOADED);
	if (!image || callers_only)
		return 0;
	if (from != tgid)
		new_image(child, image->id, ORIGIN_FORK);
	else if (!image->children_only)
		send_thread(image->id, child, child->comm);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task, int old_pid, struct linux_binprm *binary)
{
	u32 tgid = BPF_CORE_READ(task, tgid);
	struct image *image = bpf_map_lookup_elem(&images, &tgid);
	struct thread_calls *calls = bpf_task_storage_get(&thread_calls, task, 0, 0);

	end_loaded(tgid);
	/* The open calls of the thread ended with the old program. */
	if (calls) {
		send_unfinished(calls);
		add_all_seen(calls);
		calls->image = 0;
		calls->runtime_bytes = 0;
		calls->place = 0;
		calls->place_below = 0;
	}
	if (image && callers_only)
		end_image(task, image->id);
	else if (image) {
		u32 before = image->id;

		new_image(task, before, ORIGIN_EXEC);
		end_handed(before);
	}
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(thread_rename, struct task_struct *task, const char *comm)
{
	struct image *image = image_of(BPF_CORE_READ(task, tgid));

	if (image && !callers_only)
		send_thread(image->id, task, comm);
	return 0;
}

/* A thread in its own pid namespace has ended: its id may be used again. */
static __always_inline void end_inner(struct task_struct *task, u32 image)
{
	struct exit_record record = {
		.type = RECORD_THREAD_END,
		.image = image,
		.time = bpf_ktime_get_ns(),
		.pid = own_tid(task),
		.inner = inner_tid(task),
	};

	if (record.inner)
		send(&record, sizeof(record), wake_seldom(), LOSS_PROCESS);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	u32 tgid = BPF_CORE_READ(task, tgid);
	struct image *image = bpf_map_lookup_elem(&images, &tgid);
	struct thread_calls *calls = bpf_task_storage_get(&thread_calls, task, 0, 0);

	if (calls) {
		send_unfinished(calls);
		add_all_seen(calls);
	}
	if (image)
		end_handing_of(task, image);
	if (image && !callers_only && !image->children_only)
		end_inner(task, image->id);
	/* The process ends with its last thread. */
	if (BPF_CORE_READ(task, signal, live.counter))
		return 0;
	end_loaded(tgid);
	if (image)
		end_image(task, image->id);
	return 0;
}

#endif
