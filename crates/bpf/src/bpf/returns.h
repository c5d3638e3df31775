/* SPDX-License-Identifier: MIT */
/*
 * Return probes: a return probe of any tool replaces the return address of a function by the address of a trap. The
 * kernel keeps the real ones.
 *
 * The walker reads them there: when a stack is walked, when a cached walk is checked, and when a stack is copied.
 */
#ifndef WARPSCOPE_RETURNS_H
#define WARPSCOPE_RETURNS_H

#include "events.h"

/* The most calls with return probes that are searched. */
#define MOST_RETURNS 64

/*
 * The address that watched functions return to: the page that the kernel keeps in each process for uprobes, whose first
 * instruction is the trap for returns. 0 if unknown.
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

/* The real return address for `slot`, which contains the trap's; 0 if unknown. A separate function for the verifier. */
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

/* A copy of the stack's memory that begins at `page`, and the next call to look at. */
struct restored_copy {
	u8 *bytes;
	u64 size;
	u64 page;
	u64 trap;
	struct return_instance *instance;
};

static long restore_return(u32 index, struct restored_copy *copy)
{
	struct return_instance *instance = copy->instance;
	u64 at;

	if (!instance)
		return 1;
	at = BPF_CORE_READ(instance, stack) - copy->page;
	if (at <= copy->size - 8 && *(u64 *)(copy->bytes + at) == copy->trap)
		*(u64 *)(copy->bytes + at) = BPF_CORE_READ(instance, orig_ret_vaddr);
	copy->instance = BPF_CORE_READ(instance, next);
	return 0;
}

/* Restores the real return addresses in a copy of the stack's memory that begins at `page`. */
static __always_inline void restore_returns(u8 *bytes, u64 size, u64 page)
{
	struct restored_copy copy = { .bytes = bytes, .size = size, .page = page, .trap = return_trap() };

	if (!copy.trap || !bpf_core_field_exists(struct return_instance, orig_ret_vaddr))
		return;
	copy.instance = BPF_CORE_READ(bpf_get_current_task_btf(), utask, return_instances);
	bpf_loop(MOST_RETURNS, restore_return, &copy, 0);
}

#endif
