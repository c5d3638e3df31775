/* SPDX-License-Identifier: MIT */
/* Why a thread is off the CPU. */
#ifndef WARPSCOPE_WAIT_REASON_H
#define WARPSCOPE_WAIT_REASON_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "shared.h"

#define STATE_DEAD 0x80
#define PF_IO_WORKER 0x10
#define PF_KTHREAD 0x200000
#define NO_SYSTEM_CALL ((u64)-1)

/* Why a thread waits, by the system call that it is in (numbers of x86-64). */
static __always_inline u32 wait_reason(u64 system_call)
{
	switch (system_call) {
	case NO_SYSTEM_CALL:
		return WAIT_MEMORY;
	case 202: /* futex */
	case 449: /* futex_waitv */
	case 455: /* futex_wait */
		return WAIT_LOCK;
	case 35: /* nanosleep */
	case 230: /* clock_nanosleep */
		return WAIT_SLEEP;
	case 7: /* poll */
	case 23: /* select */
	case 232: /* epoll_wait */
	case 270: /* pselect6 */
	case 271: /* ppoll */
	case 281: /* epoll_pwait */
	case 441: /* epoll_pwait2 */
		return WAIT_EVENTS;
	case 0: /* read */
	case 1: /* write */
	case 17: /* pread64 */
	case 18: /* pwrite64 */
	case 19: /* readv */
	case 20: /* writev */
	case 40: /* sendfile */
	case 42: /* connect */
	case 43: /* accept */
	case 44: /* sendto */
	case 45: /* recvfrom */
	case 46: /* sendmsg */
	case 47: /* recvmsg */
	case 74: /* fsync */
	case 75: /* fdatasync */
	case 208: /* io_getevents */
	case 257: /* openat */
	case 288: /* accept4 */
	case 295: /* preadv */
	case 296: /* pwritev */
	case 299: /* recvmmsg */
	case 307: /* sendmmsg */
	case 426: /* io_uring_enter */
		return WAIT_IO;
	case 61: /* wait4 */
	case 247: /* waitid */
		return WAIT_PROCESS;
	case 16: /* ioctl */
		return WAIT_DRIVER;
	}
	return WAIT_OTHER;
}

/* Threads of the kernel have no registers of a process, and those that end need none. */
static __always_inline bool has_stack(struct task_struct *task, u32 state)
{
	return !(state & STATE_DEAD) && !(BPF_CORE_READ(task, flags) & (PF_IO_WORKER | PF_KTHREAD));
}

#endif
