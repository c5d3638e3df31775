/* SPDX-License-Identifier: MIT */
/*
 * Memory inside PyTorch's caching allocator (`record --memory`): its static tracepoints `pytorch:malloc` and
 * `pytorch:free`, each hit as one record, because the order matters.
 *
 * The allocator reports an allocation after it has made it, and a free before it makes it. So in the ring the free of an
 * address always precedes its next allocation, on whichever thread that is.
 */
#ifndef WARPSCOPE_TENSORS_H
#define WARPSCOPE_TENSORS_H

#include "hits.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_TENSOR_POINTS);
	__type(key, u32);
	__type(value, struct tensor_point);
} tensor_points SEC(".maps");

static __always_inline int tensor(struct pt_regs *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid(), own = own_pid_tgid(pid_tgid), device = 0;
	u32 index = bpf_get_attach_cookie(ctx);
	struct image *image = image_of(pid_tgid >> 32);
	struct tensor_point *point = bpf_map_lookup_elem(&tensor_points, &index);
	struct tensor_record record = { .type = RECORD_TENSOR };
	struct scratch *scratch;

	if (!image || !point)
		return 0;
	scratch = bpf_task_storage_get(&launch_scratch, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!scratch) {
		count_loss(LOSS_TENSOR);
		return 0;
	}
#define TAKE(number, name) scratch->registers.general[number] = ctx->name;
	REGISTERS(TAKE)
#undef TAKE
	record.image = image->id;
	record.time = bpf_ktime_get_ns();
	record.pid = own >> 32;
	record.tid = own;
	record.what = point->what;
	if (!weigh(&point->address, &scratch->registers, &record.address) ||
	    !weigh(&point->bytes, &scratch->registers, &record.bytes) ||
	    !weigh(&point->device, &scratch->registers, &device)) {
		count_loss(LOSS_TENSOR);
		return 0;
	}
	record.device = device;
	if (point->what == TENSOR_ALLOCATED) {
		record.cause = cause_of(image);
		take_both(ctx, PT_REGS_IP(ctx), PT_REGS_SP(ctx), image, pid_tgid, record.time, &record.stack,
			  &record.python);
	}
	send(&record, sizeof(record), wake_seldom(), LOSS_TENSOR);
	return 0;
}

static __always_inline int tensor_measured(struct pt_regs *ctx)
{
	u64 begun = cost_begin();

	tensor(ctx);
	cost_end(COST_HIT, begun);
	return 0;
}

SEC("uprobe.multi")
int tensor_multi(struct pt_regs *ctx)
{
	return tensor_measured(ctx);
}

SEC("uprobe")
int tensor_single(struct pt_regs *ctx)
{
	return tensor_measured(ctx);
}

#endif
