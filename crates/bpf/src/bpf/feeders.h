/* SPDX-License-Identifier: MIT */
/*
 * Threads that launch GPU work. If waits are recorded, theirs are also sent one by one: a GPU may be idle because of them.
 */
#ifndef WARPSCOPE_FEEDERS_H
#define WARPSCOPE_FEEDERS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* Set before loading. */
const volatile bool waits_recorded = false;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} feeders SEC(".maps");

/* The current thread launches. */
static __always_inline void note_feeder(void)
{
	if (waits_recorded)
		bpf_task_storage_get(&feeders, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline bool is_feeder(struct task_struct *task)
{
	return bpf_task_storage_get(&feeders, task, 0, 0) != 0;
}

#endif
