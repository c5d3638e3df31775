/* SPDX-License-Identifier: MIT */
/*
 * The current thread's Python thread state, and what reading Python needs in maps.
 *
 * A thread is known by its fs base, which is what pthread_self returns and Python keeps as thread_id: unlike a thread's
 * number it is the same seen from inside and outside of a container, and after a fork.
 */
#ifndef WARPSCOPE_PYTHON_STATE_H
#define WARPSCOPE_PYTHON_STATE_H

#include "events.h"

/* Written by the reader; a forked child inherits its parent's entry. Image to layout. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct python_process);
} python_processes SEC(".maps");

/* A code object looked at before, and how many had been made by then. */
struct tagged_code {
	u64 code;
	u64 tag;
	u64 versions;
};

#define TAGGED_CODES 128

/* What a thread remembers: its thread state, or that it has none. */
struct python_thread {
	u32 image;
	u32 pad;
	u64 state;
	u64 absent; /* the list of thread states, as it began when this thread was not in it */
	struct tagged_code tagged[TAGGED_CODES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct python_thread);
} python_threads SEC(".maps");

/* The most of a frame and of a thread state that is looked at. */
#define PYTHON_FRAME_BYTES 128
#define PYTHON_PAGE 4096
#define PYTHON_STATE_BYTES 256
#define PYTHON_TAG_WORDS 12
/* The most thread states that are looked through for one. */
#define PYTHON_MOST_THREADS 1024
/* Frames of the interpreter's own stand between Python's, at most one for each. */
#define PYTHON_STEPS (2 * MAX_PYTHON_FRAMES)

struct python_scratch {
	u64 wanted; /* the thread's fs base */
	u64 interpreter;
	u64 state;
	u64 frame;
	u64 hash;
	u64 versions;
	u64 window; /* which addresses `bytes` begins with */
	u64 window_bytes;
	u32 depth;
	u32 found;
	/* A part of a page of frames, then a frame by itself. */
	u8 bytes[PYTHON_PAGE + PYTHON_FRAME_BYTES + 8];
	u8 state_bytes[PYTHON_STATE_BYTES + 8];
	u64 tag[PYTHON_TAG_WORDS];
	struct python_stack_record record;
	struct python_code_record code;
};

/* What the steps of a walk share. */
struct python_walker {
	struct python_scratch *scratch;
	struct python_process *process;
	struct python_thread *thread;
};

/* A word and a byte of the frame that lies `at` in the scratch memory. */
static __always_inline u64 frame_word(struct python_scratch *scratch, u64 at, u16 offset)
{
	return *(u64 *)(scratch->bytes + at + (offset & (PYTHON_FRAME_BYTES - 8)));
}

static __always_inline u8 frame_byte(struct python_scratch *scratch, u64 at, u16 offset)
{
	return scratch->bytes[at + (offset & (PYTHON_FRAME_BYTES - 1))];
}

static __always_inline u64 state_word(struct python_scratch *scratch, u16 offset)
{
	return *(u64 *)(scratch->state_bytes + (offset & (PYTHON_STATE_BYTES - 8)));
}

static __always_inline u64 user_word(u64 address)
{
	u64 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (void *)address);
	return word;
}

/* Reads a thread state; true if it is the wanted thread's. */
static __always_inline bool read_state(struct python_walker *walker, u64 state)
{
	struct python_scratch *scratch = walker->scratch;
	u64 size = walker->process->thread_size;

	if (!state || size > PYTHON_STATE_BYTES || bpf_probe_read_user(scratch->state_bytes, size, (void *)state))
		return false;
	return state_word(scratch, walker->process->thread_id) == scratch->wanted;
}

/* A thread state that was freed still looks like one, but its neighbours in the list do not know it any more. */
static __always_inline bool in_list(struct python_walker *walker, u64 state)
{
	struct python_process *process = walker->process;
	u64 before = state_word(walker->scratch, process->thread_prev);

	if (before)
		return user_word(before + process->thread_next) == state;
	return user_word(state_word(walker->scratch, process->thread_interpreter) + process->interpreter_threads) == state;
}

static long find_state(u32 index, struct python_walker *walker)
{
	struct python_scratch *scratch = walker->scratch;
	struct python_process *process = walker->process;

	if (!scratch->state) {
		if (!scratch->interpreter)
			return 1;
		scratch->state = user_word(scratch->interpreter + process->interpreter_threads);
		scratch->interpreter = user_word(scratch->interpreter + process->interpreter_next);
		return 0;
	}
	if (read_state(walker, scratch->state)) {
		scratch->found = 1;
		return 1;
	}
	scratch->state = state_word(scratch, process->thread_next);
	return 0;
}

/* Finds the thread's state and leaves its bytes in the scratch memory. */
static __always_inline bool find_thread(struct python_walker *walker, u32 image)
{
	struct python_thread *thread = walker->thread;
	struct python_scratch *scratch = walker->scratch;
	struct python_process *process = walker->process;
	u64 interpreter, first, absent;

	if (thread->image == image && read_state(walker, thread->state) && in_list(walker, thread->state))
		return true;
	interpreter = user_word(process->interpreters);
	if (!interpreter)
		return false;
	/* New ones come to the front: while the front is the same, who was not in the list is not in it now. */
	first = user_word(interpreter + process->interpreter_threads);
	absent = mix(mix(image, first), user_word(first + process->thread_id));
	if (thread->absent == absent)
		return false;
	scratch->interpreter = interpreter;
	scratch->state = 0;
	scratch->found = 0;
	bpf_loop(PYTHON_MOST_THREADS, find_state, walker, 0);
	thread->image = image;
	thread->state = scratch->found ? scratch->state : 0;
	thread->absent = scratch->found ? 0 : absent;
	return scratch->found;
}

#endif
