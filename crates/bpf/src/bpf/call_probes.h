/* SPDX-License-Identifier: MIT */
/*
 * The programs at the entry and at the return of functions, one for each kind of probe: their cookie identifies the
 * function. Two iterators over all threads collect what is left.
 */
#ifndef WARPSCOPE_CALL_PROBES_H
#define WARPSCOPE_CALL_PROBES_H

#include "calls.h"

static __always_inline int enter_measured(struct pt_regs *ctx)
{
	u64 begun = cost_begin();

	enter_call(ctx, bpf_get_attach_cookie(ctx));
	cost_end(COST_ENTER, begun);
	return 0;
}

static __always_inline int leave_measured(struct pt_regs *ctx)
{
	u64 begun = cost_begin();

	leave_call(ctx, bpf_get_attach_cookie(ctx));
	cost_end(COST_LEAVE, begun);
	return 0;
}

SEC("uprobe.multi")
int enter_multi(struct pt_regs *ctx)
{
	return enter_measured(ctx);
}

SEC("uretprobe.multi")
int leave_multi(struct pt_regs *ctx)
{
	return leave_measured(ctx);
}

/*
 * The cookie has the function in its lowest 16 bits, then the sizes of the code before and after the probe, 24 bits each
 * in units of 16 bytes, if the function is the runtime's.
 */
static __always_inline int enter_session(struct pt_regs *ctx, u64 cookie)
{
	u32 index = cookie & 0xffff, before = cookie >> 16 & 0xffffff, after = cookie >> 40;
	struct function *function = bpf_map_lookup_elem(&functions, &index);
	struct thread_calls *calls = caller(bpf_get_current_pid_tgid());

	if (!calls || !function)
		return 1;
	if (!calls->depth && may_begin(calls) && skip_return(ctx, function, index, calls, before << 4, after << 4))
		return 1;
	enter_call(ctx, index);
	return 0;
}

SEC("uprobe.session")
int call_session(struct pt_regs *ctx)
{
	u64 begun = cost_begin(), cookie = bpf_get_attach_cookie(ctx);
	int skip;

	if (is_session_return(ctx)) {
		leave_call(ctx, cookie & 0xffff);
		cost_end(COST_LEAVE, begun);
		return 0;
	}
	skip = enter_session(ctx, cookie);
	cost_end(COST_ENTER, begun);
	return skip;
}

SEC("uprobe")
int enter_single(struct pt_regs *ctx)
{
	return enter_measured(ctx);
}

SEC("uretprobe")
int leave_single(struct pt_regs *ctx)
{
	return leave_measured(ctx);
}

SEC("kprobe.multi")
int enter_kernel(struct pt_regs *ctx)
{
	return enter_measured(ctx);
}

SEC("kretprobe.multi")
int leave_kernel(struct pt_regs *ctx)
{
	return leave_measured(ctx);
}

/* For kernels without fprobe, such as Debian's 6.1. */
SEC("kprobe")
int enter_kernel_single(struct pt_regs *ctx)
{
	return enter_measured(ctx);
}

SEC("kretprobe")
int leave_kernel_single(struct pt_regs *ctx)
{
	return leave_measured(ctx);
}

/* The calls of the iterator's thread; null if it has none. */
static __always_inline struct thread_calls *calls_of(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	return task ? bpf_task_storage_get(&thread_calls, task, 0, 0) : 0;
}

/* Before sums are read: adds what each thread has counted by itself. */
SEC("iter/task")
int add_repeated(struct bpf_iter__task *ctx)
{
	struct thread_calls *calls = calls_of(ctx);

	if (calls)
		add_all_seen(calls);
	return 0;
}

/* At the end of a trace: sends the calls of every thread that have not returned. */
SEC("iter/task")
int unfinished(struct bpf_iter__task *ctx)
{
	struct thread_calls *calls = calls_of(ctx);

	if (calls)
		send_unfinished(calls);
	return 0;
}

#endif
