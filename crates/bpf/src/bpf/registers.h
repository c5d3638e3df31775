/* SPDX-License-Identifier: MIT */
/* The registers of a thread at its entry to the kernel. */
#ifndef WARPSCOPE_REGISTERS_H
#define WARPSCOPE_REGISTERS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* The general registers by DWARF number. */
#define REGISTERS(each)                                                                                                  \
	each(0, ax) each(1, dx) each(2, cx) each(3, bx) each(4, si) each(5, di) each(6, bp) each(7, sp)                  \
	each(8, r8) each(9, r9) each(10, r10) each(11, r11) each(12, r12) each(13, r13) each(14, r14) each(15, r15)

static __always_inline void copy_user_registers(const struct pt_regs *user, u64 *ip, u64 *general)
{
	*ip = user->ip;
#define TAKE(number, name) general[number] = user->name;
	REGISTERS(TAKE)
#undef TAKE
}

#endif
