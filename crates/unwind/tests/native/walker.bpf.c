/* walk.h compiled as BPF, with an includer's maps. The helpers are declared by number, as in libbpf's headers. */
#include "walk_types.h"

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const probe_read_user)(void *dst, __u32 size, const void *from) = (void *)112;

struct {
	int (*type)[2]; /* BPF_MAP_TYPE_ARRAY */
	__u32 *key;
	struct unwind_row *value;
	int (*max_entries)[1 << 20];
} rows __attribute__((section(".maps"), used));

/* A walk in progress, and this includer's only mapping. */
struct context {
	struct walk_state state;
	__u64 start, end, base;
	__u32 first, count;
};

struct {
	int (*type)[2];
	__u32 *key;
	struct context *value;
	int (*max_entries)[1];
} walks __attribute__((section(".maps"), used));

#define WALK_CONTEXT struct context
#define WALK_READ(context, dst, address) probe_read_user(dst, 8, (const void *)(address))

static __always_inline int walk_find(WALK_CONTEXT *context, __u64 address, struct walk_table *table)
{
	if (address < context->start || address >= context->end)
		return 1;
	table->pc = address - context->base;
	table->first = context->first;
	table->count = context->count;
	return 0;
}

static __always_inline const struct unwind_row *walk_row(WALK_CONTEXT *context, const struct walk_table *table,
							 __u32 index)
{
	__u32 key = table->first + index;

	(void)context;
	return map_lookup(&rows, &key);
}

#include "walk.h"

#define STEPS_PER_PROGRAM 8

__attribute__((section("perf_event"), used)) int walk_some(void *ctx)
{
	__u32 zero = 0;
	struct context *context = map_lookup(&walks, &zero);

	(void)ctx;
	if (!context)
		return 0;
	for (int i = 0; i < STEPS_PER_PROGRAM; i++) {
		if (walk_step(context, &context->state) != WALK_MORE)
			break;
	}
	return 0;
}

char gpl[] __attribute__((section("license"), used)) = "GPL";
