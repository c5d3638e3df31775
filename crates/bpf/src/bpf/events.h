/* SPDX-License-Identifier: MIT */
/*
 * The ring buffer, the counters of records that did not fit, and the set of followed process images.
 *
 * The ring has 32 MiB, about half a million launches. Waking the reader for each record would cost the target more
 * than the record itself. So frequent records are sent without a wake-up, unless more than 512 KiB are pending; the
 * reader polls every 10 ms. Rare records (a new process, an exit, a mapping, a copied stack) wake it at once. A record
 * that does not fit is counted by kind, and the ledger reports the count.
 */
#ifndef WARPSCOPE_EVENTS_H
#define WARPSCOPE_EVENTS_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "shared.h"
#include "namespace.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 * 1024 * 1024); /* resized before loading */
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_COUNT);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

/* The followed processes, by thread group id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct image);
} images SEC(".maps");

/* Set before loading: follow every process from its first call on. */
const volatile bool follow_all = false;
/*
 * Set before loading: follow a process from its first watched call until it exits or execs; do not follow its children.
 */
const volatile bool callers_only = false;

/* Image 0 means none. */
u32 next_image = 1;

static __always_inline u64 mix(u64 hash, u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 29);
}

static __always_inline void count_loss(u32 cause)
{
	u64 *count = bpf_map_lookup_elem(&losses, &cause);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* The followed image of a process, or null. */
static __always_inline struct image *image_of(u32 tgid)
{
	struct image *image = bpf_map_lookup_elem(&images, &tgid);

	return image && !image->children_only ? image : 0;
}

/*
 * Frequent records do not wake the reader individually: it polls every few milliseconds, and is woken when a large part
 * of the buffer has filled.
 */
static __always_inline u64 wake_seldom(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > 512 * 1024 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

static __always_inline void send(void *record, u64 size, u64 flags, u32 cause)
{
	if (bpf_ringbuf_output(&events, record, size, flags))
		count_loss(cause);
}

#endif
