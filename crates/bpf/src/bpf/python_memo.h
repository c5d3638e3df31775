/* SPDX-License-Identifier: MIT */
/*
 * Per-thread cache of Python stacks.
 *
 * A stack is determined by the image and, for each frame, the code object, the instruction, and whether the
 * interpreter's loop was entered there. A hash of these is cheap: frames are close together and are read a page at a
 * time. Distinguishing code objects from earlier ones at the same addresses is slow. It is not needed while the
 * interpreter has not created a code object: then the same hash means the same stack. Interpreters count code objects
 * from 3.12 on. In older versions what distinguishes code objects is part of the hash, which is known only after a walk.
 *
 * The injected library can compute the same hash from inside the process, where reading the frames costs little, and
 * passes it to the marker. It finds a stack only if it equals a hash that was computed here.
 */
#ifndef WARPSCOPE_PYTHON_MEMO_H
#define WARPSCOPE_PYTHON_MEMO_H

#include "python_state.h"

/* A stack may be in any place of its row. */
#define PYTHON_MEMO_ROWS 256
#define PYTHON_MEMO_PLACES 3

struct python_memo {
	u64 hash; /* of the frames, and of the number of code objects created or of their tags; 0: empty */
	u64 id;
};

struct python_cache {
	struct python_memo memos[PYTHON_MEMO_ROWS][PYTHON_MEMO_PLACES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct python_cache);
} python_caches SEC(".maps");

/* The id of the stack with this hash, otherwise 0. */
static __always_inline u64 recall_python(struct python_cache *cache, u64 hash)
{
	struct python_memo *row = cache->memos[hash >> 32 & (PYTHON_MEMO_ROWS - 1)];

	for (u32 i = 0; i < PYTHON_MEMO_PLACES; i++)
		if (row[i].hash == hash)
			return row[i].id;
	return 0;
}

/* The newest stack comes first in its row, and the oldest is dropped. */
static __always_inline void remember_python(struct python_cache *cache, u64 hash, u64 id)
{
	struct python_memo *row = cache->memos[hash >> 32 & (PYTHON_MEMO_ROWS - 1)];

	for (u32 i = PYTHON_MEMO_PLACES - 1; i > 0; i--)
		row[i] = row[i - 1];
	row[0].hash = hash;
	row[0].id = id;
}

#endif
