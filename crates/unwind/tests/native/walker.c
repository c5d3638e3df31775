/* walk.h compiled natively: it walks this process, with tables from the test. */
#define _GNU_SOURCE
#include <sys/uio.h>
#include <unistd.h>

#include "walk_types.h"

struct mapping {
	__u64 start, end; /* executable mapping */
	__u64 base;       /* the table's base in this process: bias + table.base */
	const struct unwind_row *rows;
	__u64 count;
};

struct mappings {
	const struct mapping *all;
	__u64 count;
};

/* A walk's mappings, and its initial general registers, by DWARF number. */
struct context {
	const struct mappings *mappings;
	const __u64 *registers;
};

/* Reads through the kernel, so that a wrong address is an error and not a crash. */
static int read_word(__u64 *to, __u64 address)
{
	struct iovec local = {to, 8}, remote = {(void *)address, 8};

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 8;
}

#define WALK_CONTEXT const struct context
#define WALK_READ(context, dst, address) read_word(dst, address)
#define WALK_REGISTER(context, number, value) (*(value) = (context)->registers[number], 0)

static inline int walk_find(WALK_CONTEXT *context, __u64 address, struct walk_table *table)
{
	for (__u64 i = 0; i < context->mappings->count; i++) {
		const struct mapping *mapping = &context->mappings->all[i];

		if (address < mapping->start || address >= mapping->end)
			continue;
		table->pc = address - mapping->base;
		table->count = address < mapping->base ? 0 : mapping->count;
		table->rows = mapping->rows;
		return 0;
	}
	return 1;
}

static inline const struct unwind_row *walk_row(WALK_CONTEXT *context, const struct walk_table *table, __u32 index)
{
	(void)context;
	return (const struct unwind_row *)table->rows + index;
}

#include "walk.h"

__u32 walker_walk(const struct mappings *mappings, __u64 ip, const __u64 *registers, __u64 *frames, __u32 max, int *why,
		  __u32 *guessed)
{
	const struct context context = {mappings, registers};
	struct walk_state state;
	__u32 depth;

	walk_start(&state, ip, registers[7], registers[6], registers[3]);
	depth = walk(&context, &state, frames, max, why);
	*guessed = state.guessed;
	return depth;
}

/* The search alone, for comparison with Table::lookup. */
int walker_search(const struct unwind_row *rows, __u32 count, __u32 pc, struct unwind_row *found)
{
	struct walk_table table = {.pc = pc, .count = count, .rows = rows};

	return walk_search(0, &table, found);
}
