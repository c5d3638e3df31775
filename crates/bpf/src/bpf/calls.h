/* SPDX-License-Identifier: MIT */
/*
 * Function calls: what a probe does at the entry and at the return of a function (call_probes.h, hooks.h). Each call is
 * sent as one record, or added to the sums, when it returns.
 *
 * Each thread has a stack of its open calls. A return finds its entry by the stack pointer, so entries whose function
 * was left by an exception or longjmp cannot be mistaken for it; those are sent as unfinished.
 *
 * The probe's cookie identifies the function, so one pair of programs serves thousands of functions.
 *
 *   entry --> open_calls.h: the thread's stack of open calls: arguments, time, role -----.
 *               marker, ioctl: events in between belong to the innermost of them         |
 *   return -> result, what an argument points to --> one record, or sums in the kernel <-'
 *
 * - Calls left by longjmp are found by the same rule by which the kernel drops its return probes. Calls that are open
 *   when their thread exits or the trace ends are reported as unfinished, too: an iterator over all tasks finds those.
 * - The runtime's cudaMalloc calls the driver's cuMemAlloc: a call that does the same operation as an enclosing call
 *   is marked, and not counted again.
 * - The marker fires within the call that launches; the open call gets the launch's id, and calls within it inherit
 *   it. A library may contain its own libcudart (cuBLAS does): then no call is open, and the next driver call that
 *   gives the GPU work gets the id.
 * - Stacks are taken at the entry, before the kernel changes the return address.
 * - Calls made by the injected library, or by CUPTI on its behalf, are recognised by their return address and omitted.
 * - A probe belongs to the file: other processes that use the same library hit it too, and continue after a lookup.
 */
#ifndef WARPSCOPE_CALLS_H
#define WARPSCOPE_CALLS_H

#include "launch.h"
#include "memory.h"
#include "open_calls.h"
#include "process.h"
#include "repeated.h"
#include "sums.h"

/* Set before loading: send a record for each call, or only add it to the sums. */
const volatile bool call_records = true;
/* Set before loading: stacks are taken at the entry of some functions. */
const volatile bool call_stacks = false;
/* Set before loading: if calls are only summed, still send those that contain kernel names. */
const volatile bool call_names = false;
/* Set before loading: but only if it is in this cgroup, at this many levels below the root; 0 for any. */
const volatile u64 only_cgroup = 0;
const volatile u32 cgroup_level = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_FUNCTIONS);
	__type(key, u32);
	__type(value, struct function);
} functions SEC(".maps");

struct call_text {
	struct call_record record;
	u8 more[CALL_TEXT - CALL_PAYLOAD];
};

/* Buffer for a record with text; allocated only for threads that need it. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct call_text);
} call_texts SEC(".maps");

/* A word of the arguments, counted from 1. */
static __always_inline u64 word_of(const struct call_record *call, u32 word)
{
	word--;
	return word < CALL_WORDS ? call->word[word] : 0;
}

/* The call that returns at `sp`; null if its entry was not seen. */
static __always_inline struct open_call *returning_call(struct thread_calls *calls, u32 function, u64 sp, bool kernel)
{
	u32 depth = calls->depth;

	for (u32 i = 0; i < CALL_DEPTH; i++) {
		struct open_call *open;

		if (!depth)
			return 0;
		depth--;
		open = &calls->calls[depth & (CALL_DEPTH - 1)];
		if (open->record.function == function && (kernel || open->sp == sp))
			return open;
	}
	return 0;
}

/* Reserves the next open call. */
static __always_inline struct open_call *open_call(struct thread_calls *calls)
{
	u32 depth = calls->depth;

	if (depth >= CALL_DEPTH) {
		count_loss(LOSS_CALL_DEPTH);
		return 0;
	}
	calls->depth = depth + 1;
	return &calls->calls[depth & (CALL_DEPTH - 1)];
}

static __always_inline void gather_words(struct pt_regs *ctx, const struct function *function, struct call_record *call)
{
	call->words = function->words;
	call->word[0] = PT_REGS_PARM1(ctx);
	call->word[1] = PT_REGS_PARM2(ctx);
	call->word[2] = PT_REGS_PARM3(ctx);
	call->word[3] = PT_REGS_PARM4(ctx);
	call->word[4] = PT_REGS_PARM5(ctx);
	call->word[5] = ctx->r9;
	/* The return address is between the stack pointer and the stack arguments. */
	if (function->words > 6 &&
	    bpf_probe_read_user(call->word + 6, 8 * (CALL_WORDS - 6), (void *)(PT_REGS_SP(ctx) + 8)))
		call->words = 6;
	if (function->payload && !function->text) {
		u32 bytes = function->payload_bytes;

		if (bytes <= CALL_PAYLOAD &&
		    !bpf_probe_read_user(call->bytes, bytes, (void *)word_of(call, function->payload))) {
			call->payload = bytes;
			call->flags |= CALL_HAS_PAYLOAD;
		}
	}
}

/*
 * Takes the stack from the caller on. A tail-called function has its caller's return address, which has been replaced
 * by the trap by then.
 */
static __always_inline void take_call_stack(struct pt_regs *ctx, u64 pid_tgid, struct call_record *call)
{
	struct image *image = image_of(pid_tgid >> 32);
	u64 caller = call->caller;

	if (is_return_trap(caller))
		caller = real_return(PT_REGS_SP(ctx));
	if (image && caller)
		take_both(ctx, caller - 1, PT_REGS_SP(ctx) + 8, image, pid_tgid, bpf_ktime_get_ns(), &call->stack,
			  &call->python);
}

static __always_inline bool in_wanted_cgroup(void)
{
	return !only_cgroup || bpf_get_current_ancestor_cgroup_id(cgroup_level) == only_cgroup;
}

/* The state of the current thread; null if its process is not followed. */
static __always_inline struct thread_calls *caller(u64 pid_tgid)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_calls *calls = bpf_task_storage_get(&thread_calls, task, 0, 0);
	struct image *image;
	u32 pid = pid_tgid >> 32;

	if (calls && calls->image)
		return calls;
	image = image_of(pid);
	if (!image && follow_all && in_wanted_cgroup()) {
		new_image(task, 0, ORIGIN_FOUND);
		image = image_of(pid);
	}
	if (!image)
		return 0;
	calls = bpf_task_storage_get(&thread_calls, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (calls)
		calls->image = image->id;
	else
		count_loss(LOSS_CALL);
	return calls;
}

/* Begins a call: sets what is common to all probes; null if the call is not watched or there is no room. */
static __always_inline struct open_call *begin_call(struct thread_calls *calls, const struct function *function, u32 index,
						      u64 pid_tgid, u64 sp)
{
	u32 depth = calls->depth, depth_seen = depth_of(calls);
	u64 around_start = innermost(calls);
	struct open_call *open = may_begin(calls) ? open_call(calls) : 0;
	struct call_record *call;
	u64 own;

	if (!open)
		return 0;
	call = &open->record;
	open->sp = sp;
	open->roles = 0;
	open->own_roles = 1ull << (function->role & 63) | (function->status ? STATUS_ROLE : 0);
	open->removed = 0;
	open->index = depth;
	open->inside = 0;
	open->layers = 0;
	open->layer = function->layer ? 1u << (function->layer & 31) : 0;
	call->around = around_start;
	/* Set again when the probe is done: interrupts may call watched functions, too. */
	call->start = bpf_ktime_get_ns();
	call->flags = 0;
	call->correlation = 0;
	call->session = 0;
	call->stack = 0;
	call->python = 0;
	if (depth && depth < CALL_DEPTH) {
		struct open_call *around = &calls->calls[(depth - 1) & (CALL_DEPTH - 1)];

		call->stack = around->record.stack;
		call->python = around->record.python;
		open->roles = around->roles | around->own_roles;
		open->layers = around->layers | around->layer;
		call->correlation = around->record.correlation;
		call->session = around->record.session;
	} else if (function->submits) {
		/* Replaced if the call announces a launch of its own. */
		call->correlation = calls->pending_correlation;
		call->session = calls->pending_session;
		if (call->correlation)
			call->flags |= CALL_LAUNCHES;
		calls->pending_correlation = 0;
	}
	call->type = RECORD_CALL;
	call->image = calls->image;
	call->function = index;
	own = own_pid_tgid(pid_tgid);
	call->pid = own >> 32;
	call->tid = own;
	call->depth = depth_seen;
	call->cpu = bpf_get_smp_processor_id();
	if (open->roles >> (function->role & 63) & 1 && function->role)
		call->flags |= CALL_NESTED;
	if (open->roles & STATUS_ROLE)
		call->flags |= CALL_ENCLOSED;
	call->payload = 0;
	call->end = 0;
	call->caller = 0;
	return open;
}

static __always_inline int enter_call(struct pt_regs *ctx, u64 cookie)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u64 return_address = 0;
	u32 index = cookie;
	struct function *function = bpf_map_lookup_elem(&functions, &index);
	struct thread_calls *calls = caller(pid_tgid);
	struct call_record *call;
	struct open_call *open;

	if (!calls || !function)
		return 0;
	if (!function->kernel) {
		if (call_records || (call_stacks && function->stack))
			bpf_probe_read_user(&return_address, sizeof(return_address), (void *)PT_REGS_SP(ctx));
		if (calls->depth)
			drop_left_calls(calls, PT_REGS_SP(ctx), true);
	}
	open = begin_call(calls, function, index, pid_tgid, PT_REGS_SP(ctx));
	if (!open)
		return 0;
	call = &open->record;
	call->caller = return_address;
	/* Sums rarely need the arguments. */
	if (call_records || function->gathers)
		gather_words(ctx, function, call);
	if (call_stacks && function->stack)
		take_call_stack(ctx, pid_tgid, call);
	if (!call_records && function->memory == MEMORY_FREE && !(call->flags & CALL_NESTED))
		begin_free(function, open);
	call->start = bpf_ktime_get_ns();
	return 0;
}

/* Sends a record with the text that one of its words points to. */
static __always_inline bool send_with_text(const struct function *function, struct call_record *call)
{
	struct call_text *text =
		bpf_task_storage_get(&call_texts, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	long length;

	if (!text)
		return false;
	length = bpf_probe_read_user_str(text->record.bytes, CALL_TEXT, (void *)word_of(call, function->payload));
	if (length <= 0 || length > CALL_TEXT)
		return false;
	call->payload = length;
	call->flags |= CALL_HAS_PAYLOAD;
	__builtin_memcpy(&text->record, call, CALL_HEADER + 8 * CALL_WORDS);
	send(text, CALL_HEADER + 8 * CALL_WORDS + ((u64)length & (2 * CALL_TEXT - 1)), wake_seldom(), LOSS_CALL);
	return true;
}

static __always_inline void send_call(const struct function *function, struct call_record *call)
{
	u64 size = CALL_HEADER + 8 * (u64)(call->words & 15);

	if (function->text && send_with_text(function, call))
		return;
	if (call->flags & CALL_HAS_PAYLOAD)
		size = CALL_HEADER + 8 * CALL_WORDS + (call->payload & (2 * CALL_PAYLOAD - 1));
	/* Compare the register that is sent: older verifiers do not propagate the bound from another one. */
	barrier_var(size);
	if (size <= sizeof(*call))
		send(call, size, wake_seldom(), LOSS_CALL);
}

/*
 * Sends a returned call or adds it to the sums. If `cuda` is false, the function is a kernel function, which does not
 * allocate or launch anything. Hooks need this as a constant: they are loaded without type information, and the
 * verifier requires it (-EINVAL, "missing btf func_info") for the callback that releases memory.
 */
static __always_inline void report_call(struct thread_calls *calls, const struct function *function,
					struct open_call *open, bool cuda)
{
	struct call_record *call = &open->record;
	u64 bytes;

	if (function->out && (call_records || function->gathers) && !bpf_probe_read_user(&call->out, 8, (void *)word_of(call, function->out)))
		call->flags |= CALL_HAS_OUT;
	if (call_records) {
		send_call(function, call);
		return;
	}
	bytes = word_of(call, function->bytes_a);
	if (function->bytes_b)
		bytes *= word_of(call, function->bytes_b);
	bytes <<= function->shift & 63;
	add_to_sums(function, open, bytes, function->class_word ? word_of(call, function->class_word) : 0);
	if (!cuda)
		return;
	if (function->memory)
		account_memory(calls, function, open, bytes);
	if (function->launches)
		count_kernel(function, call);
	if (call_names && function->names_kernels && !is_error(function, call->result)) {
		keep_lesson(calls, function, call);
		send_call(function, call);
	}
}

/*
 * Ends a call and drops everything above it. Its slot is freed only after it has been reported: an interrupt may call
 * watched functions, too.
 */
static __always_inline void end_call(struct thread_calls *calls, struct open_call *open, const struct function *function,
				     u64 end, u64 result, bool cuda)
{
	u32 index = open->index;

	open->record.end = end;
	open->record.result = result;
	report_call(calls, function, open, cuda);
	if (!call_records && index && index < CALL_DEPTH)
		calls->calls[(index - 1) & (CALL_DEPTH - 1)].inside += function->layer ? end - open->record.start : open->inside;
	calls->depth = index;
}

static __always_inline int leave_call(struct pt_regs *ctx, u64 cookie)
{
	u64 end = bpf_ktime_get_ns();
	u32 index = cookie;
	struct function *function = bpf_map_lookup_elem(&functions, &index);
	struct thread_calls *calls = bpf_task_storage_get(&thread_calls, bpf_get_current_task_btf(), 0, 0);
	struct open_call *open;

	if (!calls || !function)
		return 0;
	if (!function->kernel)
		drop_left_calls(calls, PT_REGS_SP(ctx) - 8, false);
	open = returning_call(calls, index, PT_REGS_SP(ctx) - 8, function->kernel);
	if (open)
		end_call(calls, open, function, end, PT_REGS_RC(ctx), true);
	return 0;
}

#endif
