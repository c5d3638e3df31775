/* SPDX-License-Identifier: MIT */
/*
 * Driver requests of followed processes: ioctl, mmap, open and close of its device files, which are identified by name.
 * Only these system calls are inspected; all others return after a few comparisons.
 *
 * The data that an ioctl points to is read at its entry, for the command within (RM_CONTROL) and the class (RM_ALLOC).
 */
#ifndef WARPSCOPE_DRIVER_H
#define WARPSCOPE_DRIVER_H

#include "open_calls.h"

/* Prefix of the names of device files. */
#define DEVICE_PREFIX "nvidia"

/* Reads the name of an open file; false if it is not a device file of the driver. */
static __always_inline bool is_device(u32 number, char *name)
{
	struct fdtable *table = BPF_CORE_READ(bpf_get_current_task_btf(), files, fdt);
	struct file **files = BPF_CORE_READ(table, fd), *file = 0;
	const char prefix[] = DEVICE_PREFIX;

	if (number >= BPF_CORE_READ(table, max_fds))
		return false;
	if (bpf_probe_read_kernel(&file, sizeof(file), files + number) || !file)
		return false;
	if (bpf_probe_read_kernel_str(name, DEVICE_NAME, BPF_CORE_READ(file, f_path.dentry, d_name.name)) < 0)
		return false;
#pragma unroll
	for (u32 i = 0; i < sizeof(prefix) - 1; i++)
		if (name[i] != prefix[i])
			return false;
	return true;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(syscall_enter, struct pt_regs *regs, long number)
{
	u64 pid_tgid;
	struct image *image;
	struct thread_calls *calls;
	struct syscall_record *call;
	char device[DEVICE_NAME] = {};
	u32 file;

	if (number != SYSCALL_IOCTL && number != SYSCALL_MMAP && number != SYSCALL_CLOSE && !opens(number))
		return 0;
	pid_tgid = bpf_get_current_pid_tgid();
	image = image_of(pid_tgid >> 32);
	if (!image)
		return 0;
	file = number == SYSCALL_MMAP ? BPF_CORE_READ(regs, r8) : BPF_CORE_READ(regs, di);
	/* The file is known only when open returns. */
	if (!opens(number) && !is_device(file, device))
		return 0;
	calls = bpf_task_storage_get(&thread_calls, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!calls) {
		count_loss(LOSS_CALL);
		return 0;
	}
	if (!may_begin(calls))
		return 0;
	call = &calls->syscall;
	call->type = RECORD_SYSCALL;
	call->image = image->id;
	call->number = number;
	pid_tgid = own_pid_tgid(pid_tgid);
	call->pid = pid_tgid >> 32;
	call->tid = pid_tgid;
	call->cpu = bpf_get_smp_processor_id();
	call->depth = calls->depth;
	call->flags = 0;
	call->file = file;
	call->correlation = 0;
	call->session = 0;
	call->end = 0;
	call->result = 0;
	call->around = innermost(calls);
	if (calls->depth && calls->depth <= CALL_DEPTH) {
		struct call_record *around = &calls->calls[calls->depth - 1].record;

		call->correlation = around->correlation;
		call->session = around->session;
	}
	__builtin_memcpy(call->device, device, sizeof(device));
	call->word[0] = BPF_CORE_READ(regs, si);
	call->word[1] = BPF_CORE_READ(regs, dx);
	call->word[2] = number == SYSCALL_MMAP ? BPF_CORE_READ(regs, r9) : 0;
	if (number == SYSCALL_IOCTL && !bpf_probe_read_user(call->head, SYSCALL_HEAD, (void *)call->word[1]))
		call->flags |= CALL_HAS_PAYLOAD;
	calls->in_syscall = 1;
	call->start = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(syscall_exit, struct pt_regs *regs, long result)
{
	struct thread_calls *calls = bpf_task_storage_get(&thread_calls, bpf_get_current_task_btf(), 0, 0);
	struct syscall_record *call;

	if (!calls || !calls->in_syscall)
		return 0;
	calls->in_syscall = 0;
	call = &calls->syscall;
	call->end = bpf_ktime_get_ns();
	call->result = result;
	if (opens(call->number)) {
		if (result < 0 || !is_device(result, call->device))
			return 0;
		call->file = result;
	}
	send(call, sizeof(*call), wake_seldom(), LOSS_CALL);
	return 0;
}

#endif
