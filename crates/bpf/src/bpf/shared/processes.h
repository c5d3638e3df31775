/* SPDX-License-Identifier: MIT */
/* Process images, and the records of their processes and threads. */
#ifndef WARPSCOPE_SHARED_PROCESSES_H
#define WARPSCOPE_SHARED_PROCESSES_H

#include "common.h"

/* How a process image was created. */
enum process_origin {
	ORIGIN_FORK = 1,
	ORIGIN_EXEC = 2,
	ORIGIN_FOUND = 3, /* it was already running */
};

/* One image of one process; see `images`. */
struct image {
	__u32 id;
	/* Follow the children of this process, but not the process itself. The recorder is 0. */
	__u32 children_only;
	/* How many raw stacks it may still send. */
	__u32 raw_left;
	/* The number of its entries in `allocations`. */
	__u32 held;
	/*
	 * The address of its mm_struct. A task with another one, or none, is in the middle of an exec or exiting: its stack
	 * no longer exists. 0 if unknown.
	 */
	__u64 memory;
	/* As `handed.calls`, if the image has none. */
	__u64 handed;
};

/*
 * The calls in progress of one process that hand work to other threads; see `handed_calls`. Processes read it: wire::launches
 * has the same structure.
 */
struct handed {
	__u64 calls; /* their number in the upper 16 bits, the sum of their ids below */
	__u32 image;
	__u32 pools; /* not 0 if the process has thread pools: only the probes know the cause of a task */
};

struct process_record {
	__u32 type;
	__u32 image;
	__u32 parent;
	__u32 origin;
	__u64 time;
	__u32 pid;
	__u32 inner; /* as in thread_record, of the main thread */
	char comm[COMM_LENGTH];
};

struct thread_record {
	__u32 type;
	__u32 image;
	__u32 tid;
	__u32 inner; /* the id that the thread knows itself by, if it has its own pid namespace; otherwise 0 */
	__u64 time;
	char comm[COMM_LENGTH];
};

/* As RECORD_THREAD_END: a thread of a Python process, or of one in its own pid namespace, has ended; `pid` is its id. */
struct exit_record {
	__u32 type;
	__u32 image;
	__u64 time;
	__u32 pid;
	__u32 inner; /* as in thread_record */
};

/* A thread and its registers at its last entry to the kernel, from an iterator (threads.bpf.c). */
struct thread_state {
	__u32 pid;
	__u32 tid;
	__u32 runs; /* it runs, or could run: the registers are those of an earlier moment */
	__u32 reason; /* otherwise, enum wait_reason */
	__u64 switches; /* how often it has left a CPU */
	__u64 thread_pointer; /* its fs base */
	__u64 ip;
	__u64 general[16]; /* by DWARF number */
};

#endif
