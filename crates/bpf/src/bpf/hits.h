/* SPDX-License-Identifier: MIT */
/*
 * Events named by the user (`record --event`): hits of a probe or tracepoint, counted and weighted by call stack.
 *
 * Hits are summed here by point, process image and stack, so a rate of a million per second does not use the ring
 * buffer. A new key is announced through the ring, so that the reader can associate its stack with its process while
 * that is alive. A hit that does not fit into the map is sent individually.
 *
 * - A new key is announced once, with the time, so that addresses are resolved by the mappings of that moment. Keys
 *   contain the mappings' generation: two libraries that use one address one after another do not share a key.
 * - A hit that fits neither the map nor the ring is lost, and counted.
 * - The reader emits differences, once a second: a crash loses the last second. Nothing is deleted from the map,
 *   because a program might be adding to an entry that was just read.
 * - At a function's entry and after its return the stack begins with the caller, whose address is certain even if the
 *   function has no unwind information; the function itself is the innermost frame by name. Anywhere else the walk
 *   begins at the instruction, with all registers.
 * - Tracepoint programs have their own scratch memory: they can run in an interrupt, in the middle of a uprobe
 *   program.
 */
#ifndef WARPSCOPE_HITS_H
#define WARPSCOPE_HITS_H

#include "launch.h"
#include "sample.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_HIT_POINTS); /* resized before loading */
	__type(key, u32);
	__type(value, struct hit_point);
} hit_points SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* resized before loading */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct hit_key);
	__type(value, struct hit_sum);
} hits SEC(".maps");

/*
 * Tracepoints run with preemption disabled, and the kernel does not start a second one on the same CPU meanwhile.
 * Launches and samples have separate scratch memory, which a tracepoint in an interrupt must not touch.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} hit_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct python_scratch);
} hit_python SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct python_thread);
} hit_threads SEC(".maps");

const struct hit_sum no_hits = {};

/* False until the unwind tables of running processes are ready: without them every stack would be sent as raw memory. */
bool hits_open = true;

static __always_inline bool counts_hits(void)
{
	return *(volatile bool *)&hits_open;
}

/* The `size` low bytes of a word. */
static __always_inline u64 narrow(u64 value, u32 size, bool is_signed)
{
	u32 unused = 64 - 8 * size;

	if (!size || size > 8)
		return 0;
	value <<= unused & 63;
	return is_signed ? (u64)((s64)value >> (unused & 63)) : value >> (unused & 63);
}

/* Reads a point's weight from the process's registers or memory; false if the memory cannot be read. */
static __always_inline bool weigh(const struct hit_point *point, const struct registers *registers, u64 *weight)
{
	u64 value = registers->general[point->base & 15];

	switch (point->source) {
	case SOURCE_NONE:
		*weight = 0;
		return true;
	case SOURCE_CONSTANT:
		value = point->offset;
		break;
	case SOURCE_REGISTER:
		value >>= point->offset & 63;
		break;
	case SOURCE_MEMORY:
		if (point->base == NO_REGISTER)
			value = 0;
		if (point->index != NO_REGISTER)
			value += registers->general[point->index & 15] * point->scale;
		/* Reading eight bytes could cross the end of a mapping. */
		if (point->size == 4) {
			u32 word = 0;

			if (bpf_probe_read_user(&word, sizeof(word), (void *)(value + point->offset)))
				return false;
			value = word;
		} else if (point->size < 4) {
			u16 word = 0;

			if (bpf_probe_read_user(&word, point->size == 1 ? 1 : 2, (void *)(value + point->offset)))
				return false;
			value = word;
		} else if (bpf_probe_read_user(&value, sizeof(value), (void *)(value + point->offset))) {
			return false;
		}
		break;
	default:
		return false;
	}
	*weight = narrow(value, point->size, point->is_signed);
	return true;
}

/*
 * Adds one hit. If the weight could not be read, is negative or is 2^56 or more, the hit is counted but adds no weight.
 */
static __always_inline void add_hit(struct hit_record *record, u64 weight, bool readable)
{
	bool outside = !readable || weight >> 56;
	struct hit_sum *sum = bpf_map_lookup_elem(&hits, &record->key);

	if (!sum) {
		bool is_new = !bpf_map_update_elem(&hits, &record->key, &no_hits, BPF_NOEXIST);

		sum = bpf_map_lookup_elem(&hits, &record->key);
		if (is_new && sum)
			bpf_ringbuf_output(&events, record, sizeof(*record), wake_seldom());
	}
	if (!sum) {
		record->sum.count = 1;
		record->sum.weight = outside ? 0 : weight;
		record->sum.outside = outside;
		send(record, sizeof(*record), wake_seldom(), LOSS_HIT);
		return;
	}
	__sync_fetch_and_add(&sum->count, 1);
	if (outside)
		__sync_fetch_and_add(&sum->outside, 1);
	else if (weight)
		__sync_fetch_and_add(&sum->weight, weight);
}

/* Fills in the record of a hit: process, time, and the current generation of its mappings. */
static __always_inline void begin_hit(struct hit_record *record, u32 point, const struct image *image, u64 pid_tgid)
{
	u32 image_id = image->id;
	struct range *range = bpf_map_lookup_elem(&mapping_ranges, &image_id);

	record->type = RECORD_HIT;
	record->pid = pid_tgid >> 32;
	record->time = bpf_ktime_get_ns();
	record->key.image = image_id;
	record->key.point = point;
	record->key.generation = range ? range->generation : 0;
}

/*
 * A probe in a process. At the entry of a function, and after its return, the stack begins with the caller, which is
 * exact even if the function itself has no unwind information.
 */
static __always_inline int hit(struct pt_regs *ctx, bool returned)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u32 index = bpf_get_attach_cookie(ctx);
	struct image *image = image_of(pid_tgid >> 32);
	struct hit_point *point = bpf_map_lookup_elem(&hit_points, &index);
	struct hit_record record = {};
	struct scratch *scratch;
	u64 ip = PT_REGS_IP(ctx), sp = PT_REGS_SP(ctx), weight = 0;
	bool readable;

	if (!image || !point || !counts_hits())
		return 0;
	begin_hit(&record, index, image, pid_tgid);
	scratch = bpf_task_storage_get(&launch_scratch, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!scratch) {
		count_loss(LOSS_HIT);
		return 0;
	}
#define TAKE(number, name) scratch->registers.general[number] = ctx->name;
	REGISTERS(TAKE)
#undef TAKE
	readable = weigh(point, &scratch->registers, &weight);
	if (returned) {
		ip -= 1;
	} else if (point->at_entry) {
		u64 caller = 0;

		bpf_probe_read_user(&caller, sizeof(caller), (void *)sp);
		if (is_return_trap(caller))
			caller = real_return(sp);
		ip = caller - 1;
		sp += 8;
	}
	take_both(ctx, ip, sp, image, pid_tgid, record.time, &record.key.stack, &record.key.python);
	add_hit(&record, weight, readable);
	return 0;
}

static __always_inline int hit_measured(struct pt_regs *ctx, bool returned)
{
	u64 begun = cost_begin();

	hit(ctx, returned);
	cost_end(COST_HIT, begun);
	return 0;
}

SEC("uprobe.multi")
int hit_multi(struct pt_regs *ctx)
{
	return hit_measured(ctx, false);
}

SEC("uretprobe.multi")
int hit_return_multi(struct pt_regs *ctx)
{
	return hit_measured(ctx, true);
}

SEC("uprobe")
int hit_single(struct pt_regs *ctx)
{
	return hit_measured(ctx, false);
}

SEC("uretprobe")
int hit_return_single(struct pt_regs *ctx)
{
	return hit_measured(ctx, true);
}

/* The user registers at the entry to the kernel. */
static __always_inline void take_user_registers(struct registers *registers)
{
	struct pt_regs *user = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	copy_user_registers(user, &registers->ip, registers->general);
}

static __always_inline u64 python_of_hit(struct python_process *process, const struct hit_record *record)
{
	u32 zero = 0;
	struct python_scratch *scratch = bpf_map_lookup_elem(&hit_python, &zero);
	struct python_thread *thread =
		bpf_task_storage_get(&hit_threads, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!scratch || !thread) {
		count_loss(LOSS_WALK);
		return 0;
	}
	scratch->image = record->key.image;
	scratch->pid = record->pid;
	scratch->time = record->time;
	return take_python(scratch, thread, 0, process);
}

SEC("tp")
int hit_tracepoint(void *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid(), weight = 0;
	u32 index = bpf_get_attach_cookie(ctx), zero = 0;
	struct image *image = image_of(pid_tgid >> 32);
	struct hit_point *point = bpf_map_lookup_elem(&hit_points, &index);
	struct scratch *scratch = bpf_map_lookup_elem(&hit_scratch, &zero);
	struct hit_record record = {};
	struct python_process *process;
	bool readable = true;

	if (!image || !point || !scratch || !counts_hits())
		return 0;
	begin_hit(&record, index, image, pid_tgid);
	if (point->source == SOURCE_FIELD) {
		readable = !bpf_probe_read_kernel(&weight, sizeof(weight), ctx + (point->offset & 0xffff));
		weight = narrow(weight, point->size, point->is_signed);
	}
	take_user_registers(&scratch->registers);
	record.key.stack = take_stack(ctx, scratch, 0, image, pid_tgid, record.time, point->kernel);
	process = bpf_map_lookup_elem(&python_processes, &record.key.image);
	if (process)
		record.key.python = python_of_hit(process, &record);
	add_hit(&record, weight, readable);
	return 0;
}

#endif
