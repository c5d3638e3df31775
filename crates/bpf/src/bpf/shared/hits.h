/* SPDX-License-Identifier: MIT */
/* Events named by the user, waits, and tensors. */
#ifndef WARPSCOPE_SHARED_HITS_H
#define WARPSCOPE_SHARED_HITS_H

enum hit_limit {
	MAX_HIT_POINTS = 4096, /* watched places */
	MAX_TENSOR_POINTS = 64, /* places of PyTorch's allocators */
};

/* Where the weight of a hit comes from. */
enum hit_source {
	SOURCE_NONE = 0, /* hits are only counted */
	SOURCE_CONSTANT = 1, /* `offset` */
	SOURCE_REGISTER = 2, /* `base`, shifted right by `offset` */
	SOURCE_MEMORY = 3, /* of the process, at `base` + `index` * `scale` + `offset` */
	SOURCE_FIELD = 4, /* of the tracepoint's record, at `offset` */
};

/* Why a thread was off the CPU: the first places of a recording that has waits. */
enum wait_reason {
	WAIT_CPU = 0, /* it could have run */
	WAIT_LOCK = 1,
	WAIT_SLEEP = 2,
	WAIT_EVENTS = 3,
	WAIT_IO = 4,
	WAIT_PROCESS = 5,
	WAIT_DRIVER = 6,
	WAIT_MEMORY = 7,
	WAIT_OTHER = 8,
	WAIT_SHORT = 9, /* too short to keep its stack */
	WAIT_REASONS = 10,
};

enum hit_register {
	NO_REGISTER = 0xff,
};

/* A watched place. Registers have DWARF numbers. */
struct hit_point {
	__u8 source;
	__u8 size; /* bytes of the weight */
	__u8 is_signed;
	__u8 base;
	__u8 index;
	__u8 scale;
	__u8 at_entry; /* the return address is at the top of the stack */
	__u8 kernel; /* the stack has a kernel part */
	__s64 offset;
};

/* The key for summing hits. In another generation of the mappings, the same addresses may have another meaning. */
struct hit_key {
	__u64 stack;
	__u64 python;
	__u32 image;
	__u32 point;
	__u32 generation;
	__u32 pad;
};

struct hit_sum {
	__u64 count;
	__u64 weight;
	__u64 outside; /* hits whose weight was unreadable, negative or too large; not included in `weight` */
};

/* A thread that launches GPU work was off the CPU. */
struct wait_record {
	__u32 type;
	__u32 tid;
	__u64 time; /* when it left the CPU */
	__u64 end;
	struct hit_key key;
};

/* A new key, with a sum of 0; or a hit that did not fit into the map. */
struct hit_record {
	__u32 type;
	__u32 pid;
	__u64 time;
	struct hit_key key;
	struct hit_sum sum;
};

enum tensor_what {
	TENSOR_ALLOCATED = 0,
	TENSOR_FREED = 1,
	TENSORS_ABANDONED = 2, /* the program is about to end: what happens from now on is the end's doing */
};

/* A place where PyTorch reports memory, and where its values are. */
struct tensor_point {
	struct hit_point address;
	struct hit_point bytes;
	struct hit_point device;
	__u32 what;
	__u32 pad;
};

/* Memory of PyTorch's caching allocator was given to a tensor, or given back. */
struct tensor_record {
	__u32 type;
	__u32 image;
	__u64 time;
	__u64 address;
	__u64 bytes;
	__u64 stack;
	__u64 python;
	__u32 pid;
	__u32 tid;
	__u32 device;
	__u32 what;
	__u32 cause; /* of the allocation: see launch_record */
	__u32 pad;
};

#endif
