/* SPDX-License-Identifier: MIT */
/* Sums that the kernel keeps: calls, errors, live memory and its contexts, and launches by kernel. */
#ifndef WARPSCOPE_SHARED_SUMS_H
#define WARPSCOPE_SHARED_SUMS_H

#include "calls.h"

/* The key of call sums in the kernel. */
struct sum_key {
	__u32 image;
	__u32 function;
	__u32 class;
	__u32 flags; /* enum sum_flag */
};
enum sum_flag {
	SUM_NESTED = CALL_NESTED,
	SUM_FAILED = 2,
};

/* Four buckets per octave of 16 ns steps: 0, 1, 2, 3, then 4-5-6-7, 8-10-12-14 ...; the last one has no upper bound. */
#define SUM_BUCKETS 128
#define SUM_SIZES 64

struct sum {
	__u64 count;
	__u64 last; /* the duration of the last call, of those whose return was watched */
	__u64 errors;
	__u64 ns;
	__u64 max;
	__u64 bytes;
	__u64 self_ns; /* without the time of nested calls */
	__u64 outer; /* time of calls not nested in another call of their layer */
	__u64 inverse_min; /* all bits of the shortest inverted: 0 before the first */
	__u64 buckets[SUM_BUCKETS];
	__u64 sizes[SUM_SIZES]; /* calls by the number of bits in their bytes */
};

struct error_key {
	__u32 image;
	__u32 function;
	__u32 code;
	__u32 enclosed; /* CALL_ENCLOSED, or 0 */
};

struct allocation_key {
	__u64 address;
	__u32 image;
	__u32 group;
};

/* An allocation site: allocations with the same call stack. */
struct site_key {
	__u64 stack;
	__u64 python;
	__u32 image;
	__u32 function;
};

struct site {
	__s64 bytes; /* live */
	__s64 count;
	__u64 since; /* of the oldest, or older: since when there has always been at least one */
};

struct allocation {
	__u64 bytes;
	__u64 time; /* of its return */
	__u64 place; /* the device or context that it belongs to */
	__u32 space;
	__u32 user; /* whose share it counts against: an index of `held_by_user` */
	struct site_key site;
};

/* A device as a place; any other place is the handle of a context. */
#define PLACE_DEVICE (1ull << 63)

/* From this group on, memory does not belong to a context. */
#define GROUP_WITHOUT_CONTEXT 3

/* A process's primary contexts: a slot for each device, and one for each handle. */
#define CONTEXT_SLOTS 64
struct context_key {
	__u32 image;
	__u32 slot;
};

struct context {
	__u64 handle;
	__u64 device; /* as a place */
	__u64 references; /* retains minus releases, as far as seen */
	__u64 unseen; /* there are references that were not seen */
};

/* Memory of a process in one space. */
struct memory_key {
	__u32 image;
	__u32 space;
};

struct memory_sum {
	__s64 live_bytes;
	__s64 live;
	__s64 peak_bytes;
	__u64 allocations;
	__u64 allocated_bytes;
	__u64 frees;
	__u64 failed; /* allocations */
	__u64 failed_frees;
	__u64 unknown_frees; /* of the frees: of memory whose allocation was not seen */
	__u64 missed_frees; /* allocations whose address was allocated again without a free in between */
	__u64 released; /* allocations released with their context */
	__u64 untracked; /* allocations that did not fit, or exceeded their process's share */
};

/* What a launch requests of a device. */
struct launch_shape {
	__u32 grid[3];
	__u32 block[3];
	__u32 shared; /* bytes of dynamic shared memory */
};

/* Launches of a kernel. */
struct kernel_key {
	__u64 address;
	__u32 image;
	__u32 handle;
};

struct kernel_sum {
	__u64 count;
	struct launch_shape shape; /* of the last launch whose return was watched */
	__u32 pad;
};

#endif
