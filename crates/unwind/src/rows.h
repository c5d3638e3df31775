/* One unwind row, the same as `unwind::Row` in Rust and in the BPF walker.
 *
 * A file's table is an array of rows sorted by pc. A row is valid from its pc up to the next row's; a gap between two
 * functions has its own row (UNWIND_CFA_NO_RULE), so the last row at or below an address is always the row for it.
 *
 * Plain C; with a hand-written or generated vmlinux.h, include that first (it defines __VMLINUX_H__ and the types).
 */
#ifndef WARPSCOPE_UNWIND_ROWS_H
#define WARPSCOPE_UNWIND_ROWS_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

struct unwind_row {
	__u32 pc;         /* virtual address in the file, minus the table's base */
	__s16 cfa_offset; /* depends on the rule, see below */
	__u16 rule;       /* 4 bits: unwind_cfa; then 6 bits for rbp and 6 for rbx: unwind_saved */
};

_Static_assert(sizeof(struct unwind_row) == 8, "rows are uploaded with the layout they have in Rust");

/* How the canonical frame address (the caller's rsp after the return) is computed. The return address is at CFA - 8. */
enum unwind_cfa {
	UNWIND_CFA_END = 0,          /* no caller: _start, clone */
	UNWIND_CFA_RSP = 1,          /* rsp + 8 * cfa_offset */
	UNWIND_CFA_RBP = 2,          /* rbp + 8 * cfa_offset */
	UNWIND_CFA_PLT = 3,          /* rsp + 8, and 8 more if (rip & 15) >= cfa_offset */
	UNWIND_CFA_RBP_SLOT = 4,     /* [rbp + 8 * UNWIND_HIGH] + 8 * UNWIND_LOW */
	UNWIND_CFA_RSP_SLOT = 5,     /* [rsp + 8 * UNWIND_HIGH] + 8 * UNWIND_LOW */
	UNWIND_CFA_SIGNAL = 6,       /* rsp points at the kernel's ucontext, which holds every register */
	UNWIND_CFA_NO_RULE = 7,      /* no CFI here: try frame pointers */
	UNWIND_CFA_REGISTER = 8,     /* the register with the DWARF number UNWIND_LOW, + 8 * UNWIND_HIGH */
	UNWIND_CFA_RETURN = 9,       /* rsp + 8 * UNWIND_HIGH; the return address is in the register UNWIND_LOW, not at CFA - 8 */
	UNWIND_CFA_THREAD = 10,      /* after the system call that creates a thread: no caller in the new thread, where
				      * rax is 0; otherwise rsp + 8 */
	UNWIND_CFA_UNKNOWN = 11,     /* the function has not been compiled yet */
	UNWIND_CFA_UNSUPPORTED = 15, /* there is CFI, but a row cannot express it */
};

/* The location of the caller's rbp or rbx. 2 to 47 is a location below the CFA: [CFA - 8 * n]. */
enum unwind_saved {
	UNWIND_SAVED_SAME = 0,   /* still in the register */
	UNWIND_SAVED_LOST = 1,   /* in a location that a row cannot express */
	UNWIND_SAVED_FRAME = 48, /* from here on: [rbp + 8 * (n - UNWIND_SAVED_ZERO)] */
	UNWIND_SAVED_ZERO = 56,
};

#define UNWIND_CFA(row) ((row)->rule & 15)
#define UNWIND_RBP(row) ((row)->rule >> 4 & 63)
#define UNWIND_RBX(row) ((row)->rule >> 10)

/* The two parts of cfa_offset in some rules: 12 bits signed, then 4 bits unsigned. */
#define UNWIND_HIGH(row) ((row)->cfa_offset >> 4)
#define UNWIND_LOW(row) ((row)->cfa_offset & 15)

/* DWARF numbers. */
#define UNWIND_REGISTER_RAX 0
#define UNWIND_REGISTER_RBX 3

/* The maximum number of rows of a table: what a binary search of UNWIND_SEARCH_STEPS steps can distinguish. */
#define UNWIND_SEARCH_STEPS 24
#define UNWIND_MAX_ROWS (1u << (UNWIND_SEARCH_STEPS - 1))

#endif
