/* SPDX-License-Identifier: MIT */
/*
 * Functions of the kernel and its modules, at entry and return: fentry and fexit. The kernel requires a separate
 * program for each function, so these two are templates. They are loaded for a function that every kernel provides for
 * such programs, and are not attached; the reader loads their instructions again for each watched function.
 *
 * Entry and return find each other by their context on the kernel's stack. Argument names come from the kernel's BTF
 * (btf.rs).
 */
#ifndef WARPSCOPE_HOOKS_H
#define WARPSCOPE_HOOKS_H

#include "calls.h"

SEC("fentry/bpf_fentry_test1")
int enter_hook(u64 *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u32 index = bpf_get_attach_cookie(ctx);
	struct function *function = bpf_map_lookup_elem(&functions, &index);
	struct thread_calls *calls = caller(pid_tgid);
	struct call_record *call;
	struct open_call *open;

	if (!calls || !function)
		return 0;
	/* Entry and return have the same context address on the kernel stack, and no other open call has it. */
	open = begin_call(calls, function, index, pid_tgid, (u64)ctx);
	if (!open)
		return 0;
	call = &open->record;
	call->words = function->words;
	if (call_records) {
#pragma unroll
		for (u32 i = 0; i < CALL_WORDS; i++)
			bpf_get_func_arg(ctx, i, (u64 *)&call->word[i]);
	}
	call->start = bpf_ktime_get_ns();
	return 0;
}

SEC("fexit/bpf_fentry_test1")
int leave_hook(u64 *ctx)
{
	u64 end = bpf_ktime_get_ns(), result = 0;
	u32 index = bpf_get_attach_cookie(ctx);
	struct function *function = bpf_map_lookup_elem(&functions, &index);
	struct thread_calls *calls = bpf_task_storage_get(&thread_calls, bpf_get_current_task_btf(), 0, 0);
	struct open_call *open;

	if (!calls || !function)
		return 0;
	open = returning_call(calls, index, (u64)ctx, false);
	if (!open)
		return 0;
	bpf_get_func_ret(ctx, &result);
	end_call(calls, open, function, end, result, false);
	return 0;
}

#endif
