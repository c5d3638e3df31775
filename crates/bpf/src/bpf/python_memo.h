/* SPDX-License-Identifier: MIT */
/*
 * Python stacks remembered by thread.
 *
 * A stack is decided by the image and, of each frame, the code object, the instruction, and whether the interpreter's loop was
 * entered there. A hash of these is quick to make: frames lie near each other and are read a page at a time. What takes long is
 * to tell code objects apart from others that lay at the same addresses before. That is not needed while the interpreter has
 * made no code object since: then the same hash is the same stack. Interpreters count code objects from 3.12 on; before, each
 * stack is walked in full.
 */
#ifndef WARPSCOPE_PYTHON_MEMO_H
#define WARPSCOPE_PYTHON_MEMO_H

#include "python_state.h"

#define PYTHON_MEMOS 512

struct python_memo {
	u64 hash; /* of the frames, without their code objects' tags; 0: nothing here */
	u64 made; /* how many code objects had been made */
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
