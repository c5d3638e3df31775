/* SPDX-License-Identifier: MIT */
/* What each thread is in the middle of: calls, innermost last, and a system call. */
#ifndef WARPSCOPE_OPEN_CALLS_H
#define WARPSCOPE_OPEN_CALLS_H

#include "returns.h"

/* Among the bits for roles: the function returns a status. */
#define STATUS_ROLE (1ull << 63)

struct open_call {
	u64 sp; /* at the entry, where the return address lies */
	u64 roles; /* of the calls around it, a bit each, and STATUS_ROLE */
	u64 own_roles; /* the same of itself */
	u32 index; /* its place in `calls` */
	u32 removed; /* it is a free, and `allocation` was live at its entry */
	u64 inside; /* time of the calls directly within it that have returned */
	u32 layers; /* of the calls around it, a bit each */
	u32 layer; /* its own bit */
	struct allocation allocation;
	struct call_record record;
};

struct thread_calls {
	u32 image; /* the thread's, once looked up; 0 before, and after an exec */
	u32 depth;
	u32 in_syscall;
	u32 pad;
	/* A launch that was announced in no watched call: the next one that can be its own is within it. */
	u64 pending_session;
	u32 pending_correlation;
	u32 pad2;
	/* The device or context that allocations belong to, and the one below it; 0 is device 0. */
	u64 place;
	u64 place_below;
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

enum { SYSCALL_OPEN = 2, SYSCALL_CLOSE = 3, SYSCALL_MMAP = 9, SYSCALL_IOCTL = 16, SYSCALL_OPENAT = 257, SYSCALL_OPENAT2 = 437 };

static __always_inline bool opens(u64 number)
{
	return number == SYSCALL_OPENAT || number == SYSCALL_OPEN || number == SYSCALL_OPENAT2;
}

/*
 * Cleared while probes are attached or removed, which happens library by library: the driver's calls would be outermost calls
 * while the runtime's probes are missing. Calls begin and end to be watched everywhere at once.
 */
bool calls_open = true;

/* Whether a call may begin: any call, or one within a call that is watched already. */
static __always_inline bool may_begin(const struct thread_calls *calls)
{
	return *(volatile bool *)&calls_open || calls->depth;
}

/* When the innermost call or system call under way began; 0 if there is none. */
static __always_inline u64 innermost(const struct thread_calls *calls)
{
	u32 depth = calls->depth;
	u64 start = 0;

	if (depth && depth <= CALL_DEPTH)
		start = calls->calls[(depth - 1) & (CALL_DEPTH - 1)].record.start;
	if (calls->in_syscall && calls->syscall.start > start)
		start = calls->syscall.start;
	return start;
}

/* Calls and system calls under way. Whether a file that is being opened is a device is not known yet: that does not count. */
static __always_inline u32 depth_of(const struct thread_calls *calls)
{
	return calls->depth + (calls->in_syscall && !opens(calls->syscall.number));
}

/*
 * The current thread's launch belongs to the innermost call under way; calls within that inherit it. In turn it has the
 * stack that was taken when the call began. Where no call is under way, the runtime is one that is not watched (linked
 * into some library), and the driver's call that it will make is the launch's.
 */
static __always_inline void tag_call(struct launch_record *launch)
{
	struct thread_calls *calls =
		bpf_task_storage_get(&thread_calls, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u32 depth = calls ? calls->depth : 0;

	if (!calls)
		return;
	calls->pending_correlation = 0;
	if (depth && depth <= CALL_DEPTH) {
		struct call_record *call = &calls->calls[(depth - 1) & (CALL_DEPTH - 1)].record;

		call->correlation = launch->correlation;
		call->session = launch->session;
		call->flags |= CALL_LAUNCHES;
		launch->stack = call->stack;
		launch->python = call->python;
	} else {
		calls->pending_correlation = launch->correlation;
		calls->pending_session = launch->session;
	}
}

static __always_inline void send_as_unfinished(struct call_record *call)
{
	call->flags |= CALL_UNFINISHED;
	call->end = 0;
	send(call, sizeof(*call), 0, LOSS_CALL);
}

static __always_inline bool returns_to_trap(u64 sp)
{
	u64 address = 0;

	bpf_probe_read_user(&address, sizeof(address), (void *)sp);
	return address == return_trap();
}

/*
 * Calls that were left without a return, by longjmp or an exception: the stack has shrunk beyond their return address, or a
 * new call has put its own there (`entry`). The kernel drops its return probes by the same rule. A function that is jumped
 * to at the end of another has the other's return address, which is the trap's by then: that one goes on.
 *
 * Kernel stacks have addresses of their own; whatever began there is over when the process runs again.
 */
static __always_inline void drop_left_calls(struct thread_calls *calls, u64 sp, bool entry)
{
	for (u32 i = 0; i < CALL_DEPTH; i++) {
		u32 depth = calls->depth;
		struct open_call *open;

		if (!depth || depth > CALL_DEPTH)
			break;
		open = &calls->calls[(depth - 1) & (CALL_DEPTH - 1)];
		if ((s64)open->sp > 0 && (open->sp > sp || (open->sp == sp && (!entry || returns_to_trap(sp)))))
			break;
		calls->depth = depth - 1;
		/* Calls within it are within the one around it, as far as that can tell. */
		if (depth > 1)
			calls->calls[(depth - 2) & (CALL_DEPTH - 1)].inside += open->inside;
		send_as_unfinished(&open->record);
	}
}

static __always_inline void send_unfinished_syscall(struct thread_calls *calls)
{
	calls->in_syscall = 0;
	calls->syscall.flags |= CALL_UNFINISHED;
	send(&calls->syscall, sizeof(calls->syscall), 0, LOSS_CALL);
}

/* Calls that will not return, or not before the trace ends. The innermost comes first, as it does when calls return. */
static __always_inline void send_unfinished(struct thread_calls *calls)
{
	u32 depth = calls->depth;

	for (u32 i = 0; i < CALL_DEPTH; i++) {
		struct open_call *open;

		if (!depth || depth > CALL_DEPTH)
			break;
		depth--;
		open = &calls->calls[depth & (CALL_DEPTH - 1)];
		if (calls->in_syscall && calls->syscall.start > open->record.start)
			send_unfinished_syscall(calls);
		/* One that has an end is being told at this moment. */
		if (depth < calls->depth && !open->record.end)
			send_as_unfinished(&open->record);
	}
	calls->depth = 0;
	if (calls->in_syscall)
		send_unfinished_syscall(calls);
}

#endif
