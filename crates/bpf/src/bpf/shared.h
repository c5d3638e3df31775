/* SPDX-License-Identifier: MIT */
/*
 * The contract between the BPF programs and the Rust side: records of the ring buffer, keys and values of maps, limits.
 *
 * This file and hits_shared.h are the only definition. contract.bpf.c lists the types that Rust uses, and the build
 * generates Rust types from its BTF (src/contract.rs). So constants that Rust needs are enumerators, which are in BTF,
 * and not macros. Every record begins with its type.
 */
#ifndef WARPSCOPE_SHARED_H
#define WARPSCOPE_SHARED_H

/* Rust reads and writes these structures as plain bytes: none may have hidden padding. */
#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

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
	RECORD_HIT = 32,
	RECORD_WAIT = 33,
	RECORD_TENSOR = 34,
	RECORD_MEMO = 40,
	RECORD_DEEP_MEMO = 41,
};

/* How a process image was created. */
enum process_origin {
	ORIGIN_FORK = 1,
	ORIGIN_EXEC = 2,
	ORIGIN_FOUND = 3, /* it was already running */
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
	LOSS_COUNT = 11,
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
	/* Calls in progress that hand work to other threads: their number in the upper 16 bits, the sum of their ids below. */
	__u64 handed;
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
};

/* How a version of Python stores its frames. */
enum python_kind {
	PYTHON_OBJECTS = 1, /* up to 3.10: frame objects, and a native call of the interpreter's loop for each */
	PYTHON_FLAGS = 2, /* 3.11: a frame says whether the loop was entered for it */
	PYTHON_SHIMS = 3, /* from 3.12: an internal frame is below the one that the loop was entered for */
};
/* FRAME_OWNED_BY_CSTACK; from 3.14 on FRAME_OWNED_BY_INTERPRETER, and the former is 4. */
#define PYTHON_OWNED_BY_C_STACK 3

/* Where a process has its Python runtime, and its layout: offsets in bytes. */
struct python_process {
	__u64 interpreters; /* address of the first interpreter's address */
	__u32 interpreter_next;
	__u32 interpreter_threads;
	__u64 versions; /* address of a count of the code objects created so far; 0 if unknown */
	__u32 interpreter_versions; /* if not 0: its offset in the interpreter */
	__u32 pad;
	__u16 thread_size; /* large enough for the fields below */
	__u16 thread_prev;
	__u16 thread_next;
	__u16 thread_interpreter;
	__u16 thread_id;
	__u16 thread_frame;
	__u16 frame_link; /* if not 0: thread_frame points to a structure with the frame's address at this offset plus 64 */
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
	__u16 code_tag; /* words that distinguish code objects at the same address */
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

enum python_frame_flag {
	PYTHON_ENTRY = 1, /* the interpreter's loop was entered for this frame: it corresponds to a native frame */
};

struct python_frame {
	__u64 code;
	__u64 tag;
	__u32 instruction; /* offset in bytes from the start of the code; up to 3.10 as in the frame object */
	__u32 flags;
};

enum python_stack_flag {
	PYTHON_STACK_TRUNCATED = 1,
	PYTHON_STACK_BROKEN = 2,
};

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

/* The name, file and lines of a code object. */
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

enum launch_work {
	WORK_NODE = 5, /* no launch: a graph node was created (wire::WORK_NODE) */
	WORK_REFUSAL = 0xff00, /* from here on: why the injected library does nothing (wire::Refusal) */
};

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
	__u16 cpu; /* with flags: which parts of its stack the thread recognised */
	__u16 work;
	__u32 cause; /* the call that handed the work over, if this thread is one of the threads that do such work */
	__u32 pad;
};

/* In place of the id of a call that hands work over. */
enum handover_cause {
	CAUSE_NONE = 0,
	CAUSE_UNKNOWN = 0xffffffff, /* several are in progress */
};

/* A call that hands work to other threads has begun. */
struct handover_record {
	__u32 type;
	__u32 image;
	__u64 stack;
	__u64 python;
	__u64 time;
	__u32 pid;
	__u32 tid;
	__u32 id;
	__u32 cause; /* of the call itself */
};

/* A thread of a Python process was started. */
struct start_record {
	__u32 type;
	__u32 image;
	__u64 stack; /* of the thread that started it */
	__u64 python;
	__u64 time;
	__u32 tid;
	__u32 creator;
	__u32 cause; /* of the thread that started it */
	__u32 pad;
};

enum launch_cpu {
	LAUNCH_KNOWN = 0x8000,
	LAUNCH_PYTHON_KNOWN = 0x4000,
};

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
	__u32 count;
	__u32 span; /* words from sp to the last recorded one */
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
	__u32 count;
	__u32 span;
	struct deep_word word[DEEP_WORDS];
};
#define DEEP_MEMO_HEADER 48

struct sample_record {
	__u32 type;
	__u32 image;
	__u64 stack;
	__u64 python; /* the Python part's id, 0 if there is none */
	__u64 time;
	__u32 pid;
	__u32 tid;
	__u32 cpu;
	__u32 cause; /* as in launch_record */
};

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
	__u8 teaches; /* it contains the names of kernels */
	__u8 layer; /* below 8; 0 if it is not shown: its time is attributed to its caller */
	__u8 group; /* of addresses: the same number in different groups is different memory */
	__u8 pad;
};

/* What a launch requests of a device. */
struct launch_shape {
	__u32 grid[3];
	__u32 block[3];
	__u32 shared; /* bytes of dynamic shared memory */
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

#pragma clang diagnostic pop

/* Records that are sent only as far as used: the size of the fixed part. */
_Static_assert(__builtin_offsetof(struct stack_record, frames) == STACK_HEADER, "stack_record");
_Static_assert(__builtin_offsetof(struct python_stack_record, frames) == PYTHON_STACK_HEADER, "python_stack_record");
_Static_assert(__builtin_offsetof(struct python_code_record, lines) == PYTHON_CODE_HEADER, "python_code_record");
_Static_assert(__builtin_offsetof(struct deep_memo_record, word) == DEEP_MEMO_HEADER, "deep_memo_record");
_Static_assert(__builtin_offsetof(struct call_record, word) == CALL_HEADER, "call_record");

#endif
