/* SPDX-License-Identifier: MIT */
/* What each thread is in the middle of: calls, innermost last, and a system call. */
#ifndef WARPSCOPE_OPEN_CALLS_H
#define WARPSCOPE_OPEN_CALLS_H

#include "events.h"

struct open_call {
	u64 sp; /* at the entry, where the return address lies */
	u64 roles; /* of the calls around it, a bit each */
	u64 role;
	struct call_record record;
};

struct thread_calls {
	u32 image; /* the thread's, once looked up; 0 before, and after an exec */
	u32 depth;
	u32 in_syscall;
	u32 pad;
	struct syscall_record syscall;
	u64 switched_out; /* when it last left a CPU */
	u32 state;
	u32 preempted;
	struct open_call calls[CALL_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_calls);
} thread_calls SEC(".maps");

/*
 * The current thread's launch belongs to the innermost call under way; calls within that inherit it. In turn it has the
 * stack that was taken when the call began.
 */
static __always_inline void tag_call(struct launch_record *launch)
{
	struct thread_calls *calls = bpf_task_storage_get(&thread_calls, bpf_get_current_task_btf(), 0, 0);
	u32 depth = calls ? calls->depth : 0;

	if (calls && depth && depth <= CALL_DEPTH) {
		struct call_record *call = &calls->calls[depth - 1].record;

		call->correlation = launch->correlation;
		call->session = launch->session;
		launch->stack = call->stack;
		launch->python = call->python;
	}
}

/* Calls that will not return, or not before the trace ends. */
static __always_inline void send_unfinished(struct thread_calls *calls)
{
	for (u32 i = 0; i < CALL_DEPTH; i++) {
		struct call_record *call = &calls->calls[i].record;

		if (i >= calls->depth)
			break;
		call->flags |= CALL_UNFINISHED;
		call->end = 0;
		send(call, sizeof(*call), 0, LOSS_CALL);
	}
	calls->depth = 0;
	if (calls->in_syscall) {
		calls->in_syscall = 0;
		calls->syscall.flags |= CALL_UNFINISHED;
		send(&calls->syscall, sizeof(calls->syscall), 0, LOSS_CALL);
	}
}

#endif
