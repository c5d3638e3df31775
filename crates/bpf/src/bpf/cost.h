/* SPDX-License-Identifier: MIT */
/*
 * Measures the time that the programs take. Of the frequent ones, one run in COST_SAMPLING is measured, chosen at random,
 * and stands for COST_SAMPLING: reading the clock at each run would be a large part of the cost.
 *
 * A measurement of more than 500 us was interrupted and does not count. The kernel's own statistics (BPF_ENABLE_STATS)
 * would measure every BPF program of the machine, at a cost for each, and not the traps.
 */
#ifndef WARPSCOPE_COST_H
#define WARPSCOPE_COST_H

#include "events.h"

/* A run that took longer was preempted: its time is that of other threads. */
#define LONGEST_RUN_NS 500000

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COST_PROGRAMS);
	__type(key, u32);
	__type(value, struct cost);
} costs SEC(".maps");

/* The time if this run is measured, otherwise 0. */
static __always_inline u64 cost_begin(void)
{
	return bpf_get_prandom_u32() & (COST_SAMPLING - 1) ? 0 : bpf_ktime_get_ns();
}

/* Adds a measured run, which stands for `runs`. */
static __always_inline void cost_add(u32 program, u64 begun, u32 runs)
{
	u64 ns = bpf_ktime_get_ns() - begun;
	struct cost *cost = bpf_map_lookup_elem(&costs, &program);

	if (!cost || ns > LONGEST_RUN_NS)
		return;
	/* A program can be preempted by another one on the same CPU. */
	__sync_fetch_and_add(&cost->runs, runs);
	__sync_fetch_and_add(&cost->ns, ns * runs);
}

static __always_inline void cost_end(u32 program, u64 begun)
{
	if (begun)
		cost_add(program, begun, COST_SAMPLING);
}

#endif
