/* SPDX-License-Identifier: MIT */
/* The state of each thread: open calls, innermost last, and a system call. */
#ifndef WARPSCOPE_OPEN_CALLS_H
#define WARPSCOPE_OPEN_CALLS_H

#include "returns.h"

/* One of the role bits: the function returns a status. */
#define STATUS_ROLE (1ull << 63)

struct open_call {
	u64 sp; /* at the entry, where the return address is */
	u64 roles; /* of the enclosing calls, a bit each, and STATUS_ROLE */
	u64 own_roles; /* its own role bits */
	u32 index; /* its index in `calls` */
	u32 removed; /* it is a free, and `allocation` was live at its entry */
	u64 inside; /* time of the returned calls directly nested in it */
	u32 layers; /* of the enclosing calls, a bit each */
	u32 layer; /* its own bit */
	struct allocation allocation;
	struct call_record record;
};

/*
 * A launch that its thread repeats, with the number of times that were not added to the sums yet. Only the thread replaces
 * it, but another one may take the count: its upper half is the number of replacements, so the count belongs to the rest.
 */
struct seen_launch {
	u64 count;
	u64 kernel; /* 0: nested launches of the function */
	u32 function;
	u32 handle;
	struct launch_shape shape;
	u32 pad;
};

/* A power of two. */
#define SEEN_LAUNCHES 64

struct thread_calls {
	u32 image; /* the thread's image, once looked up; 0 before, and after an exec */
	u32 depth;
	u32 in_syscall;
	u32 pad;
	/* A launch announced outside any watched call: the next call that can be a launch belongs to it. */
	u64 pending_session;
	u32 pending_correlation;
	u32 pad2;
	/* The device or context that allocations belong to, and the one below it; 0 is device 0. */
	u64 place;
	u64 place_below;
	/* The code of the CUDA runtime that it called last, if returns may be skipped. */
	u64 runtime;
	u64 runtime_bytes;
	struct syscall_record syscall;
	u64 switched_out; /* when it left the CPU; 0 if it runs */
	u64 wait_stack; /* its stack then, native and Python; 0 if not taken */
	u64 wait_python;
	u32 state;
	u32 preempted;
	u64 switches; /* how often it was seen to leave a CPU */
	struct open_call calls[CALL_DEPTH];
	struct seen_launch seen[SEEN_LAUNCHES];
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
 * False while probes are attached or removed, which happens library by library: without the runtime's probes, driver
 * calls would look like outermost calls. Watching starts and stops everywhere at once.
 */
bool calls_open = true;

/* Whether a call may begin: any call, or only one nested in a watched call. */
static __always_inline bool may_begin(const struct thread_calls *calls)
{
	return *(volatile bool *)&calls_open || calls->depth;
}

/* When the innermost open call or system call began; 0 if there is none. */
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

/*
 * The number of open calls and system calls. An open() does not count: whether the file is a device is not known yet.
 */
static __always_inline u32 depth_of(const struct thread_calls *calls)
{
	return calls->depth + (calls->in_syscall && !opens(calls->syscall.number));
}

/*
 * Assigns the current thread's launch to the innermost open call; nested calls inherit it. The launch gets the stack
 * taken when the call began. If no call is open, the runtime is not watched (it is linked into some library), and the
 * launch is assigned to the driver call that the runtime is about to make.
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
 * Drops calls that were left without a return, by longjmp or an exception: the stack has shrunk beyond their return
 * address, or a new call has overwritten it (`entry`). The kernel drops its return probes by the same rule. A
 * tail-called function has its caller's return address, which has been replaced by the trap by then: that call stays
 * open.
 *
 * Kernel stacks have separate addresses; calls that began there are over when the process runs again.
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
		/* Its nested calls are attributed to the enclosing call. */
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

/*
 * Sends calls that will not return, or not before the trace ends. Innermost first, in the order in which calls return.
 */
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
		/* A call with an end is being reported at this moment. */
		if (depth < calls->depth && !open->record.end)
			send_as_unfinished(&open->record);
	}
	calls->depth = 0;
	if (calls->in_syscall)
		send_unfinished_syscall(calls);
}

#endif
