/* SPDX-License-Identifier: MIT */
/*
 * The contract between the BPF programs and their reader, src/record.rs: what goes through the ring buffer.
 * Every record begins with its type; sizes are asserted on both sides.
 */
#ifndef WARPSCOPE_SHARED_H
#define WARPSCOPE_SHARED_H

#define COMM_LENGTH 16
/* The most frames kept of one stack: user and kernel part. */
#define MAX_USER_FRAMES 127
#define MAX_KERNEL_FRAMES 64

enum record_type {
	RECORD_STACK = 1,
	RECORD_LAUNCH = 2,
	RECORD_SAMPLE = 3,
	RECORD_PROCESS = 4,
	RECORD_THREAD = 5,
	RECORD_EXIT = 6,
	RECORD_RAW_STACK = 7,
};

/* How a process image came to be. */
enum process_origin {
	ORIGIN_FORK = 1,
	ORIGIN_EXEC = 2,
};

/* Why something did not arrive; indices of the map `losses`. */
enum loss {
	LOSS_LAUNCH = 0,
	LOSS_STACK = 1,
	LOSS_SAMPLE = 2,
	LOSS_PROCESS = 3,
	LOSS_WALK = 4,
	LOSS_COUNT = 5,
};

/* One image of one process; see `images`. */
struct image {
	__u32 id;
	/* Follow what this process forks, but not the process itself. */
	__u32 children_only;
	/* How many raw stacks it may still send. */
	__u32 raw_left;
};

struct stack_record {
	__u32 type;
	__u32 image;
	__u64 id;
	__u64 time;
	__u32 pid;
	__u16 user_frames;
	__u8 kernel_frames;
	__u8 result; /* enum walk_result: why the user part ends where it does */
	/* Innermost first, each an address in the calling instruction; the kernel part, then the user part. */
	__u64 frames[MAX_KERNEL_FRAMES + MAX_USER_FRAMES];
};
#define STACK_HEADER 32

/* How much of a stack is copied when it cannot be walked yet: a shallow one, or the most. */
#define RAW_PAGE 4096
#define RAW_FEW_PAGES 2
#define RAW_MOST_PAGES 8

/* A stack as it lies in memory, for the reader to walk: a module on the way has no table in the kernel yet. */
struct raw_stack_record {
	__u32 type;
	__u32 image;
	__u64 id;
	__u64 time;
	__u32 pid;
	__u32 pages;
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u64 kernel_frames;
	__u64 kernel[MAX_KERNEL_FRAMES];
	/* Whole pages, from the one that sp points into. */
	__u8 bytes[];
};

/* An executable mapping of a process and where its unwind rows lie. Sorted by start, a range for each image. */
struct mapping {
	__u64 start;
	__u64 end;
	__u64 base; /* address - base = pc of a row */
	__u32 shard; /* index in `row_shards`, or one of the two below */
	__u32 first;
	__u32 count;
	__u32 pad;
};
/* No table yet; and none to come: frame pointers. */
#define SHARD_PENDING 0xffffffff
#define SHARD_NONE 0xfffffffe

/* A part of the array `mappings`. */
struct range {
	__u32 first;
	__u32 count;
};

struct launch_record {
	__u32 type;
	__u32 image;
	__u64 session;
	__u64 stack;
	__u64 time;
	__u32 pid;
	__u32 tid;
	__u32 correlation;
	__u16 cpu;
	__u16 work;
};

struct sample_record {
	__u32 type;
	__u32 image;
	__u64 stack;
	__u64 time;
	__u32 pid;
	__u32 tid;
	__u32 cpu;
	__u32 pad;
};

struct process_record {
	__u32 type;
	__u32 image;
	__u32 parent;
	__u32 origin;
	__u64 time;
	__u32 pid;
	__u32 pad;
	char comm[COMM_LENGTH];
};

struct thread_record {
	__u32 type;
	__u32 image;
	__u32 tid;
	__u32 pad;
	char comm[COMM_LENGTH];
};

struct exit_record {
	__u32 type;
	__u32 image;
	__u64 time;
	__u32 pid;
	__u32 pad;
};

_Static_assert(sizeof(struct stack_record) == STACK_HEADER + 8 * (MAX_KERNEL_FRAMES + MAX_USER_FRAMES), "stack_record");
_Static_assert(sizeof(struct raw_stack_record) == 64 + 8 * MAX_KERNEL_FRAMES, "raw_stack_record");
_Static_assert(sizeof(struct mapping) == 40, "mapping");
_Static_assert(sizeof(struct launch_record) == 48, "launch_record");
_Static_assert(sizeof(struct sample_record) == 40, "sample_record");
_Static_assert(sizeof(struct process_record) == 48, "process_record");
_Static_assert(sizeof(struct thread_record) == 32, "thread_record");
_Static_assert(sizeof(struct exit_record) == 24, "exit_record");

#endif
