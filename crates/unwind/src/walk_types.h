/* The types shared by the walker (walk.h) and its includer. */
#ifndef WARPSCOPE_UNWIND_WALK_TYPES_H
#define WARPSCOPE_UNWIND_WALK_TYPES_H

#include "rows.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* Why a walk ended. Every reason has a counter in the ledger. */
enum walk_result {
	WALK_MORE = 0,    /* it has not ended */
	WALK_END,         /* at the outermost frame: the stack is complete */
	WALK_TRUNCATED,   /* at the maximum number of frames */
	WALK_NO_MAPPING,  /* an address in no known mapping */
	WALK_NO_ROW,      /* no rule here, and rbp is not a frame pointer */
	WALK_UNSUPPORTED, /* a rule that a row cannot express */
	WALK_NO_REGISTER, /* a rule that needs an unknown register */
	WALK_BAD_READ,    /* memory that could not be read */
	WALK_STUCK,       /* the stack did not shrink */
	WALK_RESULTS,
};

/* What is known about a register of a frame. An inner frame may have saved it: it is read from there only when needed,
 * which avoids half of the reads in most walks. */
enum walk_kind {
	WALK_LOST = 0,
	WALK_VALUE, /* its value */
	WALK_SLOT,  /* the address of its value */
};

/* The registers at one frame. */
struct walk_state {
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u64 bx;
	__u64 context; /* the address of the ucontext with all registers of an interrupted frame; 0 at the start */
	__u8 exact;    /* ip is an instruction about to run, not a return address: all registers are known */
	__u8 bp_kind;
	__u8 bx_kind;
	__u8 by_register; /* a step depended on more than the initial ip, sp and bp, and the stack */
	__u16 guessed; /* the number of steps by frame pointer because there was no rule */
	__u16 padding;
};

_Static_assert(sizeof(struct walk_state) == 48, "no hidden padding: BPF keeps states in maps");

/* A mapping's rows, and the address within them. */
struct walk_table {
	__u32 pc;    /* the address minus the mapping's bias and the table's base */
	__u32 count; /* the number of rows of the table */
	__u32 first; /* for walk_row: the start of the table in its container, and the index of the container */
	__u32 shard;
	const void *rows;
};

#endif
