/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The registers of the threads of some processes, without stopping them: an iterator over all threads writes one
 * thread_state for each.
 *
 * A thread in a system call has saved its registers on its kernel stack, all of them, and they stay until it returns. So they are
 * exact for threads that wait, if these have not run before their memory was read: their number of switches is then the same.
 */
#include "namespace.h"
#include "registers.h"
#include "wait_reason.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32); /* as the reader knows them */
	__type(value, u32);
} wanted_processes SEC(".maps");

SEC("iter/task")
int thread_states(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread_state out = {};
	struct pt_regs *user;
	u32 state;

	if (!task)
		return 0;
	out.pid = own_tgid(task);
	state = BPF_CORE_READ(task, __state);
	if (!out.pid || !bpf_map_lookup_elem(&wanted_processes, &out.pid) || !has_stack(task, state))
		return 0;
	user = (void *)bpf_task_pt_regs(task);
	out.tid = own_tid(task);
	out.runs = !state;
	out.reason = wait_reason(user->orig_ax);
	out.switches = BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw);
	out.thread_pointer = BPF_CORE_READ(task, thread.fsbase);
	copy_user_registers(user, &out.ip, out.general);
	bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
