/* SPDX-License-Identifier: MIT */
/* Limits, types of records, causes of losses, and the programs whose time is measured. */
#ifndef WARPSCOPE_SHARED_COMMON_H
#define WARPSCOPE_SHARED_COMMON_H

#define COMM_LENGTH 16
#define MAX_KERNEL_FRAMES 64
#define MAX_PYTHON_FRAMES 512

enum limit {
	/* The interpreter's internal frames are between Python's, at most one for each. */
	PYTHON_STEPS = 2 * MAX_PYTHON_FRAMES,
	/* The most frames kept of the user part of a stack. */
	MAX_USER_FRAMES = 512,
	/* Raw stacks that one image may send: enough for a short time at its start and after each dlopen. */
	MAX_RAW_STACKS = 20000,
	/* Maps of unwind rows. */
	MAX_SHARDS = 256,
	/* Entries of `mappings`, and the most of one image: what a search of MAPPING_STEPS steps covers. */
	MAX_MAPPINGS = 128 * 1024,
	MAPPING_STEPS = 14,
	MAX_MAPPINGS_PER_IMAGE = 1 << (MAPPING_STEPS - 1),
	/* Functions that can be watched in one trace. */
	MAX_FUNCTIONS = 32768,
	/*
	 * The most that is gathered of a call's arguments: words of the argument list, and bytes that one of them points
	 * to.
	 */
	CALL_WORDS = 14,
	CALL_PAYLOAD = 256,
	/* Slots of `held_by_user`: users whose ids are equal modulo this share one. */
	USERS = 1024,
	/* Entries of `handed_calls`, a power of two. */
	HANDED_CALLS = 4096,
	/* The unit in which raw stacks are copied. */
	RAW_PAGE = 4096,
};

enum record_type {
	RECORD_STACK = 1,
	RECORD_LAUNCH = 2,
	RECORD_SAMPLE = 3,
	RECORD_PROCESS = 4,
	RECORD_THREAD = 5,
	RECORD_EXIT = 6,
	RECORD_RAW_STACK = 7,
	RECORD_PYTHON_STACK = 8,
	RECORD_PYTHON_CODE = 9,
	RECORD_CALL = 10,
	RECORD_SYSCALL = 11,
	RECORD_SWITCH = 12,
	RECORD_POINT = 13,
	RECORD_HANDOVER = 14,
	RECORD_START = 15,
	RECORD_FORWARD = 16,
	RECORD_TASK = 17,
	RECORD_THREAD_END = 18,
	RECORD_HIT = 32,
	RECORD_WAIT = 33,
	RECORD_TENSOR = 34,
	RECORD_MEMO = 40,
	RECORD_DEEP_MEMO = 41,
};

/* Why something was lost; indices of the map `losses`. */
enum loss {
	LOSS_LAUNCH = 0,
	LOSS_STACK = 1,
	LOSS_SAMPLE = 2,
	LOSS_PROCESS = 3,
	LOSS_WALK = 4,
	LOSS_CALL = 5, /* calls, system calls, switches and tracepoints that did not fit into the ring */
	LOSS_CALL_DEPTH = 6, /* calls nested too deeply to be followed */
	LOSS_CALL_SUMS = 7, /* calls that did not fit into the sums */
	LOSS_HIT = 8, /* hits of `--event` that fitted neither into their map nor into the ring */
	LOSS_WAIT = 9, /* waits of threads that launch GPU work that did not fit into the ring */
	LOSS_TENSOR = 10, /* allocations and frees of tensors that did not fit into the ring */
	LOSS_SWITCH = 11, /* off-CPU intervals with a switch that the kernel did not report */
	LOSS_COUNT = 12,
};

/* The programs whose time is measured; indices of the map `costs`. */
enum cost_program {
	COST_LAUNCH = 0, /* the launch marker */
	COST_SAMPLE = 1, /* the CPU sampler */
	COST_ENTER = 2, /* the entry of a traced call */
	COST_LEAVE = 3, /* its return */
	COST_HIT = 4, /* a counted event */
	COST_PROGRAMS = 5,
};

enum cost_limit {
	COST_SAMPLING = 32,
};

/* The estimated runs of a program and their total time. */
struct cost {
	__u64 runs;
	__u64 ns;
};

#endif
