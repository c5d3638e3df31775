/* SPDX-License-Identifier: MIT */
/*
 * Python frames, read from the interpreter's own structures at the same moment as the native stack.
 *
 *   _PyRuntime -> interpreters -> thread states -> the one whose thread_id is this thread's (its fs base)
 *                                                    `-> innermost frame -> previous -> ... -> outermost
 *
 * The reader provides the address of a process's runtime and the layout of its version (`python_processes`). A stack
 * consists of code objects and instruction offsets. Each distinct stack is sent once, and so are the names, file and
 * line table of each code object, which are read here while they are certain to exist. The reader converts offsets to
 * lines.
 *
 * The interpreter makes calls from Python to Python without touching the native stack, so its frames are read every
 * time, if only to find that they match the cache (python_memo.h). Reading the process's memory is the largest cost, so
 * there are as few reads as possible: from 3.11 on frames are contiguous, and a page of them is read at once.
 */
#ifndef WARPSCOPE_PYTHON_H
#define WARPSCOPE_PYTHON_H

#include "python_memo.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u8);
} python_stacks_sent SEC(".maps");

/* Code objects are freed and their addresses reused: the address alone does not identify one. */
struct code_key {
	u64 code;
	u64 tag;
	u32 image;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct code_key);
	__type(value, u8);
} python_code_sent SEC(".maps");

/* A value that distinguishes a code object from earlier ones at its address; 0 if it cannot be read. */
static __always_inline u64 code_tag(struct python_walker *walker, u64 code)
{
	struct python_scratch *scratch = walker->scratch;
	struct tagged_code *known = &walker->thread->tagged[(code >> 4 ^ code >> 11) & (TAGGED_CODES - 1)];
	u64 tag;
	bool sure;

	if (known->code == code && known->look == scratch->look)
		return known->tag;
	tag = read_tag(scratch, walker->process, code);
	if (!tag)
		return 0;
	/* Its number, co_version, must be lower than the next one to be assigned; otherwise something else was read. */
	sure = scratch->tag[0] >> 32 < scratch->look;
	if (sure) {
		known->code = code;
		known->tag = tag;
		known->look = scratch->look;
	} else {
		/* The count does not cover this code object: do not cache the stack by it. */
		scratch->quick = 0;
	}
	return tag;
}

/*
 * Finds a frame in the scratch memory, or reads it. If the next one is in the same page, that page is read up to it:
 * outer frames are below inner ones. Frames of generators are elsewhere, and are read one by one.
 */
static __always_inline u64 read_frame(struct python_walker *walker, u64 address)
{
	struct python_scratch *scratch = walker->scratch;
	struct python_process *process = walker->process;
	u64 size = process->frame_size, inside = address - scratch->window, next, bytes;

	if (size > PYTHON_FRAME_BYTES)
		return PYTHON_PAGE + 1;
	if (inside < scratch->window_bytes && inside < PYTHON_PAGE)
		return inside;
	if (bpf_probe_read_user(scratch->bytes + PYTHON_PAGE, size, (void *)address))
		return PYTHON_PAGE + 1;
	next = field_word(scratch->bytes + PYTHON_PAGE, process->frame_previous);
	if (process->kind == PYTHON_OBJECTS || next >= address || (next ^ address) & ~(u64)(PYTHON_PAGE - 1))
		return PYTHON_PAGE;
	scratch->window = address & ~(u64)(PYTHON_PAGE - 1);
	bytes = next - scratch->window;
	if (bytes + size > PYTHON_PAGE ||
	    bpf_probe_read_user(scratch->bytes, (bytes & (PYTHON_PAGE - 1)) + size, (void *)scratch->window))
		bytes = 0;
	scratch->window_bytes = bytes ? bytes + 1 : 0;
	return PYTHON_PAGE;
}

/* Odd, so that no power of it is 0. */
#define PYTHON_FACTOR 0xd1342543de82ef95ull

/* Adds a frame to the hash that identifies cached stacks. */
static __always_inline void add_to_quick(struct python_scratch *scratch, const struct python_process *process, const u8 *copy,
					 u64 code)
{
	u64 instruction = instruction_word(process, copy) ^ (u64)entry_byte(process, copy) << 56;

	scratch->quick += mix(code * PYTHON_FACTOR, instruction) * scratch->factor;
	scratch->factor *= PYTHON_FACTOR;
}

static long python_step(u32 index, struct python_walker *walker)
{
	struct python_scratch *scratch = walker->scratch;
	struct python_process *process = walker->process;
	u64 code, tag, at;
	u32 depth = scratch->depth, instruction, flags = 0;
	struct python_frame *frame;
	const u8 *copy;

	if (!scratch->frame)
		return 1;
	at = read_frame(walker, scratch->frame);
	if (at > PYTHON_PAGE) {
		scratch->record.flags |= PYTHON_STACK_BROKEN;
		return 1;
	}
	copy = scratch->bytes + at;
	scratch->frame = field_word(copy, process->frame_previous);
	if (process->kind == PYTHON_SHIMS) {
		/* The interpreter's loop was entered here, for the frame before this one. */
		if (entry_byte(process, copy) >= PYTHON_OWNED_BY_C_STACK) {
			if (depth && depth <= MAX_PYTHON_FRAMES)
				scratch->record.frames[(depth - 1) & (MAX_PYTHON_FRAMES - 1)].flags |= PYTHON_ENTRY;
			scratch->hash = mix(scratch->hash, PYTHON_ENTRY);
			return 0;
		}
	} else if (entry_byte(process, copy)) {
		flags = PYTHON_ENTRY;
	}
	if (depth >= MAX_PYTHON_FRAMES) {
		scratch->record.flags |= PYTHON_STACK_TRUNCATED;
		return 1;
	}
	/* References may have tags in their lowest bits. */
	code = field_word(copy, process->frame_code) & ~7ull;
	tag = code_tag(walker, code);
	if (!tag) {
		scratch->record.flags |= PYTHON_STACK_BROKEN;
		return 1;
	}
	instruction = instruction_word(process, copy);
	if (process->kind != PYTHON_OBJECTS)
		instruction -= (u32)(code + process->code_start);
	frame = &scratch->record.frames[depth & (MAX_PYTHON_FRAMES - 1)];
	frame->code = code;
	frame->tag = tag;
	frame->instruction = instruction;
	frame->flags = flags;
	scratch->hash = mix(mix(scratch->hash, code ^ tag), (u64)flags << 32 | instruction);
	scratch->depth = depth + 1;
	if (process->kind != PYTHON_SHIMS)
		add_to_quick(scratch, process, copy, code ^ tag);
	return 0;
}

static long hash_frame(u32 index, struct python_walker *walker)
{
	struct python_scratch *scratch = walker->scratch;
	struct python_process *process = walker->process;
	const u8 *copy;
	u64 at;

	if (!scratch->frame)
		return 1;
	at = read_frame(walker, scratch->frame);
	if (at > PYTHON_PAGE) {
		scratch->factor = 0;
		return 1;
	}
	copy = scratch->bytes + at;
	scratch->frame = field_word(copy, process->frame_previous);
	add_to_quick(scratch, process, copy, field_word(copy, process->frame_code));
	return 0;
}

/* Leaves the hash that identifies the stack in `quick`, 0 if it cannot be cached. wire::known has the same hash. */
static __always_inline void hash_frames(struct python_walker *walker)
{
	struct python_scratch *scratch = walker->scratch;
	u64 first = scratch->frame;

	scratch->quick = 0;
	scratch->factor = 1;
	scratch->window_bytes = 0;
	bpf_loop(PYTHON_STEPS, hash_frame, walker, 0);
	scratch->frame = first;
	scratch->quick = scratch->factor ? mix(mix(scratch->quick, scratch->image), scratch->made) : 0;
}

/* Copies the characters of a str object: the first ones of a name, the last ones of a file. */
static __always_inline void read_text(struct python_process *process, u64 object, struct python_text *text, u8 *room,
				      const u32 most, const bool last)
{
	u64 length = user_word(object + process->text_length), data, bytes, skip = 0;
	u32 state = user_word(object + process->text_state) >> process->text_kind_shift, width = state & 7;

	/* kind:3 (bytes per character), compact:1, ascii:1 */
	if (!(state & 8) || !(width == 1 || width == 2 || width == 4))
		return;
	data = object + (state & 16 ? process->text_ascii : process->text_compact);
	bytes = length * width;
	if (bytes > most) {
		skip = last ? bytes - most : 0;
		bytes = most;
		text->truncated = 1;
	}
	if (bpf_probe_read_user(room, bytes, (void *)(data + skip)))
		return;
	text->bytes = bytes;
	text->width = width;
}

static long send_code(u32 index, struct python_walker *walker)
{
	struct python_scratch *scratch = walker->scratch;
	struct python_process *process = walker->process;
	struct python_code_record *record = &scratch->code;
	struct python_frame *frame = &scratch->record.frames[index & (MAX_PYTHON_FRAMES - 1)];
	struct code_key key = { .code = frame->code, .tag = frame->tag, .image = scratch->record.image };
	u64 table, bytes;
	u8 one = 1;

	if (index >= scratch->depth)
		return 1;
	if (bpf_map_lookup_elem(&python_code_sent, &key))
		return 0;
	record->type = RECORD_PYTHON_CODE;
	record->image = key.image;
	record->code = key.code;
	record->tag = key.tag;
	record->first_line = user_word(key.code + process->code_first_line);
	__builtin_memset(&record->name, 0, sizeof(record->name));
	__builtin_memset(&record->file, 0, sizeof(record->file));
	read_text(process, user_word(key.code + process->code_name), &record->name, record->name_room, PYTHON_NAME, false);
	read_text(process, user_word(key.code + process->code_file), &record->file, record->file_room, PYTHON_FILE, true);
	table = user_word(key.code + process->code_lines);
	bytes = user_word(table + process->bytes_size);
	record->lines_truncated = bytes > PYTHON_LINES;
	if (bytes > PYTHON_LINES)
		bytes = PYTHON_LINES;
	if (bpf_probe_read_user(record->lines, bytes, (void *)(table + process->bytes_data)))
		bytes = 0;
	record->lines_bytes = bytes;
	if (bpf_ringbuf_output(&events, record, PYTHON_CODE_HEADER + bytes, wake_seldom()))
		count_loss(LOSS_STACK);
	else if (record->name.width && record->file.width)
		/* If reading failed, it is tried again with the next stack. */
		bpf_map_update_elem(&python_code_sent, &key, &one, BPF_ANY);
	return 0;
}

/* Walks the frames, sends the stack if it is new, and returns its id; 0 if there is none, or it was lost. */
static __always_inline u64 walk_python(struct python_walker *walker)
{
	struct python_scratch *scratch = walker->scratch;
	struct python_stack_record *record = &scratch->record;
	u64 id, size;
	u8 one = 1;

	record->flags = 0;
	scratch->look = scratch->made;
	/* Without a count of code objects, a check is valid for this walk only. */
	if (!scratch->made)
		scratch->look = 1ull << 32 | ++walker->thread->walks;
	/* Before 3.12 the tags are part of the hash that identifies cached stacks, and only the walk reads them. */
	if (walker->process->kind != PYTHON_SHIMS) {
		scratch->quick = 0;
		scratch->factor = 1;
	}
	scratch->window_bytes = 0;
	scratch->hash = scratch->image;
	scratch->depth = 0;
	bpf_loop(PYTHON_STEPS, python_step, walker, 0);
	if (walker->process->kind != PYTHON_SHIMS)
		scratch->quick = mix(mix(scratch->quick, scratch->image), 0);
	if (!scratch->depth)
		return 0;
	id = mix(scratch->hash, record->flags) | 1;
	if (bpf_map_lookup_elem(&python_stacks_sent, &id))
		return id;
	record->type = RECORD_PYTHON_STACK;
	record->image = scratch->image;
	record->id = id;
	record->time = scratch->time;
	record->pid = scratch->pid;
	record->count = scratch->depth;
	bpf_loop(MAX_PYTHON_FRAMES, send_code, walker, 0);
	size = PYTHON_STACK_HEADER + sizeof(struct python_frame) * (u64)scratch->depth;
	if (size > sizeof(*record))
		return 0;
	if (bpf_ringbuf_output(&events, record, size, wake_seldom())) {
		count_loss(LOSS_STACK);
		return 0;
	}
	bpf_map_update_elem(&python_stacks_sent, &id, &one, BPF_ANY);
	return id;
}

/* Sets the first frame of a walk, and the count of code objects; the thread state has been read. */
static __always_inline void first_frame(struct python_walker *walker)
{
	struct python_scratch *scratch = walker->scratch;
	struct python_process *process = walker->process;
	u64 made = 0;

	if (process->versions)
		made = (u32)user_word(process->versions);
	else if (process->interpreter_versions)
		made = (u32)user_word(state_word(scratch, process->thread_interpreter) + process->interpreter_versions);
	scratch->frame = frame_of_state(walker);
	scratch->made = made;
}

/*
 * Takes the current thread's Python stack, sends it if it is new, and returns its id; 0 if there is none. `cache` is
 * the thread's cache, if it is used. Leaves the hash by which the thread can recognise it in `quick`, or 0. A separate function for
 * the verifier.
 */
__noinline u64 take_python(struct python_scratch *scratch, struct python_thread *thread, struct python_cache *cache,
			   struct python_process *process)
{
	struct python_walker walker = { .scratch = scratch, .process = process, .thread = thread };
	bool known;
	u64 id;

	if (!process || !scratch || !thread)
		return 0;
	scratch->quick = 0;
	scratch->wanted = bpf_get_current_task_btf()->thread.fsbase;
	known = thread->image == scratch->image && read_state(&walker, thread->state);
	if (known)
		first_frame(&walker);
	/* A freed thread state has no frames, so a cached stack can be used without searching the list. */
	if (known && scratch->frame && cache && scratch->made) {
		hash_frames(&walker);
		id = recall_python(cache, scratch->quick);
		if (id)
			return id;
	}
	if (!known || !in_list(&walker, thread->state)) {
		if (!find_thread(&walker))
			return 0;
		first_frame(&walker);
		scratch->quick = 0;
	}
	if (!scratch->frame)
		return 0;
	id = walk_python(&walker);
	if (!id || scratch->record.flags & PYTHON_STACK_BROKEN)
		scratch->quick = 0;
	if (cache && scratch->quick)
		remember_python(cache, scratch->quick, id);
	return id;
}

/* A forked child has its parent's interpreter, at the same addresses. */
static __always_inline void inherit_python(u32 parent, u32 child)
{
	struct python_process *process = bpf_map_lookup_elem(&python_processes, &parent);

	if (process)
		bpf_map_update_elem(&python_processes, &child, process, BPF_ANY);
}

/* Declares an image whose program is a known Python. */
static __always_inline void declare_program(struct task_struct *task, u32 image)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct inode *inode = BPF_CORE_READ(mm, exe_file, f_inode);
	struct python_program_key key = {
		.device = BPF_CORE_READ(inode, i_sb, s_dev),
		.inode = BPF_CORE_READ(inode, i_ino),
	};
	struct python_program *program = bpf_map_lookup_elem(&python_programs, &key);
	struct python_process process;
	u64 bias;

	if (!program)
		return;
	process = program->process;
	bias = BPF_CORE_READ(mm, start_code) - program->code;
	process.interpreters += bias;
	if (process.versions)
		process.versions += bias;
	bpf_map_update_elem(&python_processes, &image, &process, BPF_ANY);
}

#endif
