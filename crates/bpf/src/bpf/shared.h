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
};

struct stack_record {
	__u32 type;
	__u32 image;
	__u64 id;
	__u64 time;
	__u32 pid;
	__u16 user_frames;
	__u16 kernel_frames;
	/* Innermost first; the kernel part, then the user part. */
	__u64 frames[MAX_KERNEL_FRAMES + MAX_USER_FRAMES];
};
#define STACK_HEADER 32

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
_Static_assert(sizeof(struct launch_record) == 48, "launch_record");
_Static_assert(sizeof(struct sample_record) == 40, "sample_record");
_Static_assert(sizeof(struct process_record) == 48, "process_record");
_Static_assert(sizeof(struct thread_record) == 32, "thread_record");
_Static_assert(sizeof(struct exit_record) == 24, "exit_record");

#endif
