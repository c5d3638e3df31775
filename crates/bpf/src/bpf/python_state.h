/* SPDX-License-Identifier: MIT */
/*
 * The current thread's Python thread state, and the maps for reading Python.
 *
 * A thread is identified by its fs base, which pthread_self returns and Python keeps as thread_id: unlike a thread id
 * it is the same inside and outside of a container, and after a fork.
 *
 * A thread without a thread state, such as autograd's, has no Python frames; this is cached until a thread state is
 * added. A forked child has its parent's interpreter from its first instruction.
 */
#ifndef WARPSCOPE_PYTHON_STATE_H
#define WARPSCOPE_PYTHON_STATE_H

#include "events.h"

/*
 * Image to layout. Written by the reader; a forked child inherits its parent's entry. If every process is followed from its
 * first call, the reader also declares those that have loaded CUDA, by their thread group id with this bit: their first
 * stack has Python frames.
 */
#define PYTHON_LOADED 0x80000000u

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct python_process);
} python_processes SEC(".maps");

/*
 * Layouts of program files: a process that executes one has Python frames from its first instruction. If the interpreter is in a
 * library, or the file is not known yet, the reader declares the process when it has read the mapping.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct python_program_key);
	__type(value, struct python_program);
} python_programs SEC(".maps");

/* A code object checked before, and when. */
struct tagged_code {
	u64 code;
	u64 tag;
	u64 look;
};

#define TAGGED_CODES 128

/*
 * The cache of a thread: its thread state, or that it has none. Each thread has two, because the sampler may interrupt
 * the launch probe.
 */
struct python_thread {
	u32 image;
	u32 walks;
	u64 state;
	u64 absent; /* the head of the list of thread states when this thread was not in it */
	struct tagged_code tagged[TAGGED_CODES];
};

/* The most bytes read of a frame and of a thread state. */
#define PYTHON_FRAME_BYTES 128
#define PYTHON_PAGE 4096
#define PYTHON_STATE_BYTES 256
#define PYTHON_TAG_WORDS 12
#define PYTHON_BLOCK 32
/* The most thread states searched. */
#define PYTHON_MOST_THREADS 1024

struct python_scratch {
	/* The time of the requested stack. */
	u64 time;
	u32 image;
	u32 pid;
	u64 wanted; /* the thread's fs base */
	u64 interpreter;
	u64 state;
	u64 frame;
	u64 hash;
	u64 quick; /* the hash for the cache; 0 if the stack cannot be cached */
	u64 factor; /* of the next frame in it; 0 if a frame cannot be read */
	u64 made; /* the number of code objects created so far; 0 if unknown */
	u64 look; /* code objects checked under this number need no further check */
	u64 window; /* the address of the first byte in `bytes` */
	u64 window_bytes;
	u32 depth;
	u32 found;
	u64 without_frames; /* a state with the id of the requested thread, but without frames; 0 if there is none */
	/* A part of a page of frames, then a separate frame. */
	u8 bytes[PYTHON_PAGE + PYTHON_FRAME_BYTES + 8];
	u8 state_bytes[PYTHON_STATE_BYTES + 8];
	u64 tag[1]; /* the number of a code object */
	/* What is being hashed, and zeros behind it. */
	u8 content[PYTHON_LINES + PYTHON_BLOCK] __attribute__((aligned(8)));
	struct python_stack_record record;
	struct python_code_record code;
};

/* State shared by the steps of a walk. */
struct python_walker {
	struct python_scratch *scratch;
	struct python_process *process;
	struct python_thread *thread;
};

/* Fields of a frame; `frame` is a copy of it. */
static __always_inline u64 field_word(const u8 *frame, u16 offset)
{
	return *(const u64 *)(frame + (offset & (PYTHON_FRAME_BYTES - 8)));
}

static __always_inline u64 instruction_word(const struct python_process *process, const u8 *frame)
{
	u64 word = field_word(frame, process->frame_instruction);

	/* An int, followed by another field. */
	return process->kind == PYTHON_OBJECTS ? (u32)word : word;
}

/* The byte that says whether the interpreter's loop was entered at a frame. */
static __always_inline u8 entry_byte(const struct python_process *process, const u8 *frame)
{
	if (process->kind == PYTHON_OBJECTS)
		return 1;
	return frame[(process->kind == PYTHON_SHIMS ? process->frame_owner : process->frame_entry) & (PYTHON_FRAME_BYTES - 1)];
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

/* Four hashes of every fourth word each: they do not wait for each other. */
struct python_hasher {
	struct python_scratch *scratch;
	u64 lanes[4];
};

static long hash_block(u32 index, struct python_hasher *hasher)
{
	u64 at = (u64)index * PYTHON_BLOCK;
	const u64 *words;

	if (at > PYTHON_LINES - PYTHON_BLOCK)
		return 1;
	words = (const u64 *)(hasher->scratch->content + at);
	for (u32 i = 0; i < 4; i++)
		hasher->lanes[i] = mix(hasher->lanes[i], words[i]);
	return 0;
}

/*
 * Leaves bytes of the process in `content`, at most PYTHON_LINES of them, and returns their hash; 0 if they cannot be read.
 * wire::known has the same function. A separate function for the verifier.
 */
__noinline u64 hash_memory(struct python_scratch *scratch, u64 address, u64 bytes)
{
	struct python_hasher hasher = { .scratch = scratch };
	u64 read = bytes > PYTHON_LINES ? PYTHON_LINES : bytes;
	u64 *lanes = hasher.lanes;

	if (!scratch || bpf_probe_read_user(scratch->content, read, (void *)address))
		return 0;
	__builtin_memset(scratch->content + read, 0, PYTHON_BLOCK);
	bpf_loop((read + PYTHON_BLOCK - 1) / PYTHON_BLOCK, hash_block, &hasher, 0);
	return mix(mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]), bytes);
}

/* A hash of a str object: its own, which is after its length, if it has been computed. */
static __always_inline u64 hash_text(struct python_scratch *scratch, const struct python_process *process, u64 object)
{
	u64 hash = user_word(object + process->text_length + 8), length = user_word(object + process->text_length);
	u32 state = user_word(object + process->text_state) >> process->text_kind_shift;

	/* As in read_text(). */
	if (hash != ~0ull || !(state & 8))
		return hash;
	return hash_memory(scratch, object + (state & 16 ? process->text_ascii : process->text_compact),
			   length * (state & 7));
}

/* The same for a bytes object. */
static __always_inline u64 hash_bytes(struct python_scratch *scratch, const struct python_process *process, u64 object)
{
	u64 hash = user_word(object + process->bytes_size + 8);

	if (hash != ~0ull)
		return hash;
	return hash_memory(scratch, object + process->bytes_data, user_word(object + process->bytes_size));
}

/* A field of a code object that is in `content`, from `code_tag` on. */
static __always_inline u64 tagged_word(struct python_scratch *scratch, const struct python_process *process, u16 offset)
{
	return *(u64 *)(scratch->content + ((offset - process->code_tag) & 0xf8));
}

/*
 * A value that distinguishes a code object from earlier ones at its address; 0 if it cannot be read. From 3.12 on it has a number
 * that is never used twice. Before that, all its fields may equal those of an earlier one, and so may the addresses of its
 * name, its file and its lines: then their contents distinguish them.
 */
static __always_inline u64 read_tag(struct python_scratch *scratch, const struct python_process *process, u64 code)
{
	u64 words = process->code_tag_words, tag, name, file, lines;

	if (words > PYTHON_TAG_WORDS)
		return 0;
	if (process->kind == PYTHON_SHIMS) {
		if (bpf_probe_read_user(scratch->tag, sizeof(scratch->tag[0]), (void *)(code + process->code_tag)))
			return 0;
		return mix(scratch->tag[0], words) | 1;
	}
	tag = hash_memory(scratch, code + process->code_tag, 8 * words);
	if (!tag)
		return 0;
	name = tagged_word(scratch, process, process->code_name);
	file = tagged_word(scratch, process, process->code_file);
	lines = tagged_word(scratch, process, process->code_lines);
	tag = mix(tag, hash_text(scratch, process, name));
	tag = mix(tag, hash_text(scratch, process, file));
	return mix(tag, hash_bytes(scratch, process, lines)) | 1;
}

/* Reads a thread state; true if it belongs to the requested thread. */
static __always_inline bool read_state(struct python_walker *walker, u64 state)
{
	struct python_scratch *scratch = walker->scratch;
	u64 size = walker->process->thread_size;

	if (!state || size > PYTHON_STATE_BYTES || bpf_probe_read_user(scratch->state_bytes, size, (void *)state))
		return false;
	return state_word(scratch, walker->process->thread_id) == scratch->wanted;
}

/* A freed thread state still looks valid, but its neighbours in the list no longer point to it. */
static __always_inline bool in_list(struct python_walker *walker, u64 state)
{
	struct python_process *process = walker->process;
	u64 before = state_word(walker->scratch, process->thread_prev);

	if (before)
		return user_word(before + process->thread_next) == state;
	return user_word(state_word(walker->scratch, process->thread_interpreter) + process->interpreter_threads) == state;
}

/* The innermost frame of a thread state that has been read; 0 if it has none. */
static __always_inline u64 frame_of_state(struct python_walker *walker)
{
	struct python_process *process = walker->process;
	u64 frame = state_word(walker->scratch, process->thread_frame);

	return process->frame_link && frame ? user_word(frame + (process->frame_link & 63)) : frame;
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
		if (frame_of_state(walker)) {
			scratch->found = 1;
			return 1;
		}
		/* Up to 3.11, the state of a thread that is being started has the id of the thread that starts it. */
		scratch->without_frames = scratch->state;
	}
	scratch->state = state_word(scratch, process->thread_next);
	return 0;
}

/* Searches for the thread's state and leaves its bytes in the scratch memory. */
static __always_inline bool find_thread(struct python_walker *walker)
{
	struct python_thread *thread = walker->thread;
	struct python_scratch *scratch = walker->scratch;
	struct python_process *process = walker->process;
	u32 image = scratch->image;
	u64 interpreter, first, absent;

	interpreter = user_word(process->interpreters);
	if (!interpreter)
		return false;
	/*
	 * New states are added at the head: while the head is the same, a thread that was not in the list is still not in
	 * it.
	 */
	first = user_word(interpreter + process->interpreter_threads);
	absent = mix(mix(image, first), user_word(first + process->thread_id));
	if (thread->absent == absent)
		return false;
	scratch->interpreter = interpreter;
	scratch->state = 0;
	scratch->found = 0;
	scratch->without_frames = 0;
	bpf_loop(PYTHON_MOST_THREADS, find_state, walker, 0);
	if (!scratch->found && read_state(walker, scratch->without_frames)) {
		scratch->state = scratch->without_frames;
		scratch->found = 1;
	}
	thread->image = image;
	thread->state = scratch->found ? scratch->state : 0;
	thread->absent = scratch->found ? 0 : absent;
	return scratch->found;
}

#endif
