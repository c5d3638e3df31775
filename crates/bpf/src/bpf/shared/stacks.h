/* SPDX-License-Identifier: MIT */
/* Native stacks, copies of stacks, mappings with their unwind rows, and what determined a walk. */
#ifndef WARPSCOPE_SHARED_STACKS_H
#define WARPSCOPE_SHARED_STACKS_H

#include "common.h"

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

_Static_assert(__builtin_offsetof(struct stack_record, frames) == STACK_HEADER, "stack_record");

/*
 * How much of a stack is copied if it cannot be walked yet: of a shallow one, of most, and of a deep one. Single frames of
 * cuBLAS have more than 32 KiB.
 */
#define RAW_FEW_PAGES 2
#define RAW_MOST_PAGES 8
#define RAW_DEEP_PAGES 32

/* The registers of a thread; the general ones by DWARF number. */
struct registers {
	__u64 ip;
	__u64 general[16];
};
#define REGISTER_RBX 3
#define REGISTER_RBP 6
#define REGISTER_RSP 7

/* The memory of a stack, for the reader to walk: a module on it has no table in the kernel yet. */
struct raw_stack_record {
	__u32 type;
	__u32 image;
	__u64 id;
	__u64 time;
	__u32 pid;
	__u32 pages;
	struct registers registers;
	__u64 kernel_frames;
	__u64 kernel[MAX_KERNEL_FRAMES];
	/* Whole pages, from the one that sp points into. */
	__u8 bytes[];
};

/* An executable mapping of a process and the location of its unwind rows. Sorted by start, a range for each image. */
struct mapping {
	__u64 start;
	__u64 end;
	__u64 base; /* address - base = pc of a row */
	__u32 shard; /* index in `row_shards`, or one of the two below */
	__u32 first;
	__u32 count;
	__u32 pad;
};
/* Values in place of a shard. */
enum no_shard {
	SHARD_NONE = 0xfffffffe, /* there will be no table: frame pointers */
	SHARD_PENDING = 0xffffffff, /* no table yet */
};

/* A part of the array `mappings`. The generation changes whenever anything in it does; 0 means empty. */
struct range {
	__u32 first;
	__u32 count;
	__u32 generation;
	/* No further stacks of the image are kept: new ones are not sent. */
	__u32 full;
};

/* Stands for a stack of such an image: `StackId::LEFT_OUT`. */
#define STACK_LEFT_OUT ((__u64)-2)

/*
 * What determined the walk of a launch's stack: the registers at the marker, and the words that were read. If they are
 * the same again, the stack is the same.
 */
#define MEMO_WORDS 256
struct memo_record {
	__u32 type;
	__u32 image;
	__u64 session;
	__u64 stack;
	__u64 sp;
	__u64 bp;
	__u64 count;
	__u64 value[MEMO_WORDS];
	__u16 place[MEMO_WORDS]; /* words from sp */
};

/* The same for a deep stack: most steps of a walk read one word, some read two. Sent as far as used. */
#define DEEP_WORDS 1024
struct deep_word {
	__u64 value;
	__u64 place; /* words from sp */
};
struct deep_memo_record {
	__u32 type;
	__u32 image;
	__u64 session;
	__u64 stack;
	__u64 sp;
	__u64 bp;
	__u64 count;
	struct deep_word word[DEEP_WORDS];
};
#define DEEP_MEMO_HEADER 48

_Static_assert(__builtin_offsetof(struct deep_memo_record, word) == DEEP_MEMO_HEADER, "deep_memo_record");

#endif
