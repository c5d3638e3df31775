/* One unwind row, as `unwind::Row` in Rust and as the BPF walker sees it.
 *
 * A file's table is an array of rows sorted by pc. A row holds from its pc up to the next row's; a hole between two
 * functions has a row of its own (UNWIND_CFA_NO_RULE), so the row below an address is always the row for it.
 *
 * Plain C; with a hand-written or generated vmlinux.h, include that first (it defines __VMLINUX_H__ and the types).
 */
#ifndef WARPSCOPE_UNWIND_ROWS_H
#define WARPSCOPE_UNWIND_ROWS_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

struct unwind_row {
	__u32 pc;         /* virtual address in the file, less the table's base */
	__s16 cfa_offset; /* by rule, see below */
	__u16 rule;       /* 4 bits: unwind_cfa; then 6 bits for rbp and 6 for rbx: unwind_saved */
};

_Static_assert(sizeof(struct unwind_row) == 8, "rows are uploaded as they lie in Rust's memory");

/* How the canonical frame address (the caller's rsp after the return) is found. The return address is at CFA - 8. */
enum unwind_cfa {
	UNWIND_CFA_END = 0,          /* no caller: _start, clone */
	UNWIND_CFA_RSP = 1,          /* rsp + 8 * cfa_offset */
	UNWIND_CFA_RBP = 2,          /* rbp + 8 * cfa_offset */
	UNWIND_CFA_PLT = 3,          /* rsp + 8, and 8 more where (rip & 15) >= cfa_offset */
	UNWIND_CFA_RBP_SLOT = 4,     /* [rbp + 8 * UNWIND_HIGH] + 8 * UNWIND_LOW */
	UNWIND_CFA_RSP_SLOT = 5,     /* [rsp + 8 * UNWIND_HIGH] + 8 * UNWIND_LOW */
	UNWIND_CFA_SIGNAL = 6,       /* rsp points at the kernel's ucontext, which holds every register */
	UNWIND_CFA_NO_RULE = 7,      /* no CFI here: try frame pointers */
	UNWIND_CFA_REGISTER = 8,     /* the register with DWARF's number UNWIND_LOW, + 8 * UNWIND_HIGH */
	UNWIND_CFA_UNSUPPORTED = 15, /* there is CFI, but no row can say it */
};

/* Where the caller's rbp, or rbx, is. 2 to 47 is a place below the CFA: [CFA - 8 * n]. */
enum unwind_saved {
	UNWIND_SAVED_SAME = 0,   /* still in the register */
	UNWIND_SAVED_LOST = 1,   /* nowhere a row can name */
	UNWIND_SAVED_FRAME = 48, /* from here on: [rbp + 8 * (n - UNWIND_SAVED_ZERO)] */
	UNWIND_SAVED_ZERO = 56,
};

#define UNWIND_CFA(row) ((row)->rule & 15)
#define UNWIND_RBP(row) ((row)->rule >> 4 & 63)
#define UNWIND_RBX(row) ((row)->rule >> 10)

/* The two parts of cfa_offset in some rules: 12 bits signed, then 4 bits unsigned. */
#define UNWIND_HIGH(row) ((row)->cfa_offset >> 4)
#define UNWIND_LOW(row) ((row)->cfa_offset & 15)

/* DWARF's number of rbx. */
#define UNWIND_REGISTER_RBX 3

/* Most rows a table may have: what a binary search of UNWIND_SEARCH_STEPS steps can tell apart. */
#define UNWIND_SEARCH_STEPS 24
#define UNWIND_MAX_ROWS (1u << (UNWIND_SEARCH_STEPS - 1))

#endif
