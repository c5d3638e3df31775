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
#define MAX_PYTHON_FRAMES 128

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
	/* Follow what this process forks and runs, but not the process itself. The recorder is 0. */
	__u32 children_only;
	/* How many raw stacks it may still send. */
	__u32 raw_left;
	__u32 pad;
	/* Its memory, by the address of its description in the kernel. A task that has another one, or none, is in the middle
	 * of an exec or at its end: its stack is no more. */
	__u64 memory;
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

/* A thread's registers; the general ones by DWARF's numbers. */
struct registers {
	__u64 ip;
	__u64 general[16];
};
#define REGISTER_RBX 3
#define REGISTER_RBP 6
#define REGISTER_RSP 7

/* A stack as it lies in memory, for the reader to walk: a module on the way has no table in the kernel yet. */
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

/* How a version of Python keeps its frames. */
enum python_kind {
	PYTHON_OBJECTS = 1, /* to 3.10: frame objects, and a native call of the interpreter's loop for each */
	PYTHON_FLAGS = 2, /* 3.11: a frame says whether the loop was entered for it */
	PYTHON_SHIMS = 3, /* from 3.12: a frame of the interpreter's own lies below the one that the loop was entered for */
};
/* FRAME_OWNED_BY_CSTACK; from 3.14 on FRAME_OWNED_BY_INTERPRETER, and the former is 4. */
#define PYTHON_OWNED_BY_C_STACK 3

/* Where a process has its Python runtime, and how that lays things out: offsets in bytes. */
struct python_process {
	__u64 interpreters; /* address of the first interpreter's address */
	__u32 interpreter_next;
	__u32 interpreter_threads;
	__u64 versions; /* address of a count of the code objects made so far; 0 if it is not known */
	__u32 interpreter_versions; /* if not 0: the interpreter has it, here */
	__u32 pad;
	__u16 thread_size; /* as much as holds the fields below */
	__u16 thread_prev;
	__u16 thread_next;
	__u16 thread_interpreter;
	__u16 thread_id;
	__u16 thread_frame;
	__u16 frame_link; /* if not 0: thread_frame points to what has, here plus 64, the frame's address */
	__u16 frame_size;
	__u16 frame_previous;
	__u16 frame_code;
	__u16 frame_instruction;
	__u16 frame_owner;
	__u16 frame_entry;
	__u16 code_first_line;
	__u16 code_name;
	__u16 code_file;
	__u16 code_lines;
	__u16 code_tag; /* words that tell apart code objects which came to lie at the same address */
	__u16 code_tag_words;
	__u16 code_start;
	__u16 bytes_size;
	__u16 bytes_data;
	__u16 text_length;
	__u16 text_state;
	__u16 text_ascii;
	__u16 text_compact;
	__u16 text_kind_shift;
	__u16 kind;
};

/* The interpreter's loop was entered for this frame: it answers to a native frame. */
#define PYTHON_ENTRY 1

struct python_frame {
	__u64 code;
	__u64 tag;
	__u32 instruction; /* bytes from the code's first; to 3.10 as the frame object has it */
	__u32 flags;
};

#define PYTHON_STACK_TRUNCATED 1
#define PYTHON_STACK_BROKEN 2

struct python_stack_record {
	__u32 type;
	__u32 image;
	__u64 id;
	__u64 time;
	__u32 pid;
	__u16 count;
	__u16 flags;
	/* Innermost first. */
	struct python_frame frames[MAX_PYTHON_FRAMES];
};
#define PYTHON_STACK_HEADER 32

#define PYTHON_NAME 256
#define PYTHON_FILE 512
#define PYTHON_LINES 4096

/* Characters of 1, 2 or 4 bytes; a width of 0 means that they could not be read. */
struct python_text {
	__u16 bytes;
	__u8 width;
	__u8 truncated;
};

/* What is to be known of a code object. */
struct python_code_record {
	__u32 type;
	__u32 image;
	__u64 code;
	__u64 tag;
	__u32 first_line;
	struct python_text name;
	struct python_text file;
	__u16 lines_bytes;
	__u16 lines_truncated;
	__u8 name_room[PYTHON_NAME];
	__u8 file_room[PYTHON_FILE];
	__u8 lines[PYTHON_LINES];
};
#define PYTHON_CODE_HEADER (40 + PYTHON_NAME + PYTHON_FILE)

struct launch_record {
	__u32 type;
	__u32 image;
	__u64 session;
	__u64 stack;
	__u64 python; /* the Python part's id, 0 if there is none */
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
	__u64 python; /* the Python part's id, 0 if there is none */
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

_Static_assert(sizeof(struct image) == 24, "image");
_Static_assert(sizeof(struct stack_record) == STACK_HEADER + 8 * (MAX_KERNEL_FRAMES + MAX_USER_FRAMES), "stack_record");
_Static_assert(sizeof(struct raw_stack_record) == 176 + 8 * MAX_KERNEL_FRAMES, "raw_stack_record");
_Static_assert(sizeof(struct mapping) == 40, "mapping");
_Static_assert(sizeof(struct launch_record) == 56, "launch_record");
_Static_assert(sizeof(struct sample_record) == 48, "sample_record");
_Static_assert(sizeof(struct python_process) == 88, "python_process");
_Static_assert(sizeof(struct python_frame) == 24, "python_frame");
_Static_assert(sizeof(struct python_stack_record) == PYTHON_STACK_HEADER + 24 * MAX_PYTHON_FRAMES, "python_stack_record");
_Static_assert(sizeof(struct python_code_record) == PYTHON_CODE_HEADER + PYTHON_LINES, "python_code_record");
_Static_assert(sizeof(struct process_record) == 48, "process_record");
_Static_assert(sizeof(struct thread_record) == 32, "thread_record");
_Static_assert(sizeof(struct exit_record) == 24, "exit_record");

#endif
