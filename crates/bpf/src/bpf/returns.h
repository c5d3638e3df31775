/* SPDX-License-Identifier: MIT */
/*
 * Return probes: whoever has one on a function, in whatever tool, puts the address of a trap in place of the function's return
 * address. The kernel keeps the real ones.
 */
#ifndef WARPSCOPE_RETURNS_H
#define WARPSCOPE_RETURNS_H

#include "events.h"

/* Calls under return probes that are looked through. */
#define MOST_RETURNS 64

/*
 * Where the return addresses of watched functions lead: the page that the kernel keeps in each process for uprobes, whose
 * first instruction is the trap for returns. 0 if it is not known.
 */
static __always_inline u64 return_trap(void)
{
	if (!bpf_core_field_exists(struct xol_area, vaddr))
		return 0;
	return BPF_CORE_READ(bpf_get_current_task_btf(), mm, uprobes_state.xol_area, vaddr);
}

/* The trap is at the start of a page, where hardly any call returns to. */
static __always_inline bool is_return_trap(u64 address)
{
	return address && !(address & 4095) && address == return_trap();
}

/* The return address that belongs at `slot`, where the trap's is; 0 if it is not known. A function of its own for the
 * verifier. */
__noinline u64 real_return(u64 slot)
{
	struct return_instance *instance;

	if (!bpf_core_field_exists(struct return_instance, orig_ret_vaddr))
		return 0;
	instance = BPF_CORE_READ(bpf_get_current_task_btf(), utask, return_instances);
	for (u32 i = 0; i < MOST_RETURNS && instance; i++) {
		if (BPF_CORE_READ(instance, stack) == slot)
			return BPF_CORE_READ(instance, orig_ret_vaddr);
		instance = BPF_CORE_READ(instance, next);
	}
	return 0;
}

/* Puts the real return addresses into a copy of the stack's memory, which begins at `page` there. */
static __always_inline void restore_returns(u8 *copy, u64 size, u64 page)
{
	u64 trap = return_trap();
	struct return_instance *instance;

	if (!trap || !bpf_core_field_exists(struct return_instance, orig_ret_vaddr))
		return;
	instance = BPF_CORE_READ(bpf_get_current_task_btf(), utask, return_instances);
	for (u32 i = 0; i < MOST_RETURNS && instance; i++) {
		u64 at = BPF_CORE_READ(instance, stack) - page;

		if (at <= size - 8 && *(u64 *)(copy + at) == trap)
			*(u64 *)(copy + at) = BPF_CORE_READ(instance, orig_ret_vaddr);
		instance = BPF_CORE_READ(instance, next);
	}
}

#endif
