/* SPDX-License-Identifier: MIT */
/* Traced functions and their calls; system calls, context switches and tracepoints. */
#ifndef WARPSCOPE_SHARED_CALLS_H
#define WARPSCOPE_SHARED_CALLS_H

#include "common.h"

#define CALL_TEXT 4096
/* The most nested calls that are followed, a power of two. */
#define CALL_DEPTH 16

/* What to gather at the calls of a function; an entry of `functions`. Words count from 1 if 0 means none. */
struct function {
	__u8 words; /* of the argument list: six registers, then the stack */
	__u8 out; /* at the return, the 8 bytes that this word points to are read */
	__u8 payload; /* this word points to bytes, read at the entry, or to text, read at the return */
	__u8 text;
	__u16 payload_bytes;
	__u8 status; /* it returns a status: 0 is success */
	__u8 role; /* calls within calls of the same role do not count */
	/* What a call adds to the sums: the product of two words, shifted, with a separate sum for each class. */
	__u8 bytes_a;
	__u8 bytes_b;
	__s8 shift;
	__u8 class_word;
	__u8 memory; /* enum function_memory */
	__u8 space; /* the kind of memory; sums are separate for each */
	__u8 kernel; /* a kernel function */
	__u8 stack; /* take the stack at its calls */
	__u8 launches; /* this word identifies the launched kernel */
	__u8 handle; /* by the driver's handle, not by the address of a host function */
	__u8 dims; /* enum function_dims: where its dimensions are */
	__u8 dims_word;
	__u8 submits; /* it submits GPU work: a launch, a copy, a memset */
	__u8 gathers; /* sums need its arguments */
	__u8 names_kernels; /* it contains the names of kernels */
	__u8 layer; /* below 8; 0 if it is not shown: its time is attributed to its caller */
	__u8 group; /* of addresses: the same number in different groups is different memory */
	__u8 pad;
};

/* Where a launch has its dimensions. */
enum function_dims {
	DIMS_NONE = 0,
	DIMS_PACKED = 1, /* two words for the grid, two for the block: x and y in the first, z in the second */
	DIMS_WORDS = 2, /* six words */
	DIMS_PAYLOAD = 3, /* the first 24 bytes of the payload */
};

/* What a function does to memory and contexts, for tracking live memory: crates/cuda/src/memory.rs has the rules. */
enum function_memory {
	MEMORY_NONE = 0,
	MEMORY_ALLOC = 1, /* `out` is the address, or the first word where there is no `out`; the sum's bytes are its size */
	MEMORY_FREE = 2, /* the first word is the address */
	MEMORY_SET_DEVICE = 3, /* the first word is the device */
	MEMORY_SET_CONTEXT = 4, /* the first word is the context */
	MEMORY_PUSH_CONTEXT = 5,
	MEMORY_POP_CONTEXT = 6,
	MEMORY_CREATE_CONTEXT = 7, /* `out` is the context, which becomes current */
	MEMORY_DESTROY_CONTEXT = 8, /* the first word is the context */
	MEMORY_RETAIN_PRIMARY = 9, /* `out` is the context, the second word the device */
	MEMORY_RELEASE_PRIMARY = 10, /* the first word is the device */
	MEMORY_RESET_PRIMARY = 11, /* the first word is the device */
	MEMORY_RESET_DEVICE = 12, /* the current one */
};

enum call_flag {
	CALL_NESTED = 1, /* nested in a call of the same role */
	CALL_UNFINISHED = 2, /* it had not returned when its thread or the trace ended */
	CALL_HAS_PAYLOAD = 4, /* the payload was read */
	CALL_HAS_OUT = 8, /* the 8 bytes behind the word `out` could be read */
	CALL_LAUNCHES = 16, /* the launch is its own, not that of an enclosing call */
	CALL_ENCLOSED = 32, /* nested in a call that returns a status: an error is counted there */
};

/*
 * One call of a function. While it is open it is in `thread_calls`; the record sent consists of the head, the gathered
 * words, and the payload after all CALL_WORDS words.
 */
struct call_record {
	__u32 type;
	__u32 image;
	__u64 session; /* of the launch made in it, if the marker reported it */
	__u64 start;
	__u64 end;
	__u64 result;
	__u64 out;
	__u64 stack;
	__u64 python;
	__u64 caller; /* its return address */
	__u64 around; /* when the innermost enclosing call began, which identifies it on its thread; 0 if there is none */
	__u32 function;
	__u32 correlation;
	__u32 pid;
	__u32 tid;
	__u16 cpu;
	__u8 depth;
	__u8 words;
	__u16 payload;
	__u16 flags;
	__u64 word[CALL_WORDS];
	__u8 bytes[CALL_PAYLOAD];
};
#define CALL_HEADER 104

_Static_assert(__builtin_offsetof(struct call_record, word) == CALL_HEADER, "call_record");

/* The name of a device file, truncated but unique. */
#define DEVICE_NAME 24
#define SYSCALL_HEAD 32

/* A system call on a device file. */
struct syscall_record {
	__u32 type;
	__u32 image;
	__u64 session;
	__u64 start;
	__u64 end;
	__s64 result;
	__u64 around; /* see call_record */
	__u64 word[3]; /* ioctl: request, argument, 0; mmap: length, protection, offset */
	__u32 number;
	__u32 correlation;
	__u32 pid;
	__u32 tid;
	__u16 cpu;
	__u8 depth;
	__u8 flags;
	__u32 file; /* the descriptor */
	char device[DEVICE_NAME];
	__u8 head[SYSCALL_HEAD]; /* ioctl: what the argument points to */
};

/* A thread was off the CPU. */
struct switch_record {
	__u32 type;
	__u32 image;
	__u64 out;
	__u64 in;
	__u64 around; /* see call_record */
	__u64 stack; /* when it left the CPU; 0 if it was not taken */
	__u64 python;
	__u32 pid;
	__u32 tid;
	__u16 cpu;
	__u8 depth;
	__u8 preempted; /* it was still runnable */
	__u32 state;
};

/* A tracepoint was hit. */
#define POINT_BYTES 128
struct point_record {
	__u32 type;
	__u32 image;
	__u64 time;
	__u64 around; /* see call_record */
	__u32 function;
	__u32 pid;
	__u32 tid;
	__u16 cpu;
	__u16 depth;
	__u8 bytes[POINT_BYTES];
};

#endif
