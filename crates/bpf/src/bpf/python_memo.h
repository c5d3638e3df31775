/* SPDX-License-Identifier: MIT */
/*
 * Per-thread cache of Python stacks.
 *
 * A stack is determined by the image and, for each frame, the code object, the instruction, and whether the
 * interpreter's loop was entered there. A hash of these is cheap: frames are close together and are read a page at a
 * time. Distinguishing code objects from earlier ones at the same addresses is slow. It is not needed while the
 * interpreter has not created a code object: then the same hash means the same stack. Interpreters count code objects
 * from 3.12 on; in older versions each stack is walked in full.
 */
#ifndef WARPSCOPE_PYTHON_MEMO_H
#define WARPSCOPE_PYTHON_MEMO_H

#include "python_state.h"

#define PYTHON_MEMOS 512

struct python_memo {
	u64 hash; /* of the frames, without their code objects' tags; 0: empty */
	u64 made; /* the number of code objects created */
	u64 id;
};

struct python_cache {
	struct python_memo memos[PYTHON_MEMOS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct python_cache);
} python_caches SEC(".maps");

static __always_inline struct python_memo *python_memo_of(struct python_cache *cache, u64 hash)
{
	return &cache->memos[hash >> 32 & (PYTHON_MEMOS - 1)];
}

#endif
