/* What the walker (walk.h) and its includer share. */
#ifndef WARPSCOPE_UNWIND_WALK_TYPES_H
#define WARPSCOPE_UNWIND_WALK_TYPES_H

#include "rows.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* Why a walk ended. Every reason has a counter in the ledger. */
enum walk_result {
	WALK_MORE = 0,    /* it has not */
	WALK_END,         /* at the outermost frame: the stack is whole */
	WALK_TRUNCATED,   /* at the most frames asked for */
	WALK_NO_MAPPING,  /* an address in no known mapping */
	WALK_NO_ROW,      /* no rule here, and rbp is no frame pointer */
	WALK_UNSUPPORTED, /* a rule that no row can say */
	WALK_NO_REGISTER, /* a rule that needs a register which was lost on the way */
	WALK_BAD_READ,    /* memory that could not be read */
	WALK_STUCK,       /* the stack did not shrink */
	WALK_RESULTS,
};

/* What is known of a register of a frame. An inner frame may have saved it: it is read from there only when it is needed,
 * which spares most walks half of their reads. */
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
	__u64 context; /* where the ucontext lies that holds all registers of an interrupted frame; 0 at the start */
	__u8 exact;    /* ip is an instruction about to run, not a return address: all registers are known */
	__u8 bp_kind;
	__u8 bx_kind;
	__u8 by_register; /* a step was decided by more than ip, sp and bp, as they were at the start, and the stack */
	__u16 guessed; /* how many steps went by frame pointer for want of a rule */
	__u16 padding;
};

_Static_assert(sizeof(struct walk_state) == 48, "no hidden padding: BPF keeps states in maps");

/* A mapping's rows, and the address within them. */
struct walk_table {
	__u32 pc;    /* the address less the mapping's bias and the table's base */
	__u32 count; /* how many rows the table has */
	__u32 first; /* for walk_row: where the table begins in whatever holds it, and which one that is */
	__u32 shard;
	const void *rows;
};

#endif
