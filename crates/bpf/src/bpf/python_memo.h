/* SPDX-License-Identifier: MIT */
/*
 * Python stacks remembered by thread, as memo.h does for native ones.
 *
 * A walk over Python's frames is decided by the frame it begins with; by four fields of each frame: the previous frame, the code
 * object, the instruction, and whether the interpreter's loop was entered there; and by what tells code objects apart. If all
 * are as they were, it is the same stack.
 *
 * To look at them takes few reads, each of which costs more than comparing many frames: frames that lie near each other are
 * read as one piece. From 3.11 on most do. Pieces fill the room from its end down, as outer frames lie below inner ones:
 *
 *     room  [            | piece 2 | piece 1 | piece 0: frame frame frame ... innermost ]
 *
 * Frames of the interpreter's own lie on the native stack, which memo.h has most often just read.
 *
 * Code objects need no look while the interpreter has made no more of them (3.12 on); before, each is read.
 */
#ifndef WARPSCOPE_PYTHON_MEMO_H
#define WARPSCOPE_PYTHON_MEMO_H

#include "memo.h"
#include "python_state.h"

#define PYTHON_MEMOS 4
#define PYTHON_PIECES 64
/* Python's frames, and some of the interpreter's own between them. */
#define PYTHON_SEEN 160
#define PYTHON_CODES 64
#define PYTHON_ROOM 16384
#define PYTHON_PIECE 4096
/* What lies between two frames of one piece at most: more costs as much as another read. */
#define PYTHON_NEAR 2048

struct python_piece {
	u64 address;
	u32 bytes;
	u32 place; /* in the room */
};

struct python_seen {
	u64 address;
	u64 previous;
	u64 code;
	u64 instruction;
	u32 place; /* in the room, or PYTHON_ON_STACK */
	u32 entry;
};
#define PYTHON_ON_STACK PYTHON_ROOM

struct python_memo {
	u64 frame; /* the innermost; 0: nothing here */
	u64 made; /* how many code objects had been made */
	u64 id;
	u32 image;
	u32 pieces;
	u32 seen_count;
	u32 code_count;
	struct python_piece piece[PYTHON_PIECES];
	struct python_seen seen[PYTHON_SEEN];
	struct {
		u64 code;
		u64 tag;
	} code[PYTHON_CODES];
};

struct python_memory {
	struct python_memo memos[PYTHON_MEMOS];
	u8 room[PYTHON_ROOM + PYTHON_PIECE + PYTHON_FRAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct python_memory);
} python_memories SEC(".maps");

_Static_assert(sizeof(struct python_memory) < 65000, "what a task storage may hold");

/* The memo to try: the same frame at another native stack is most often at another instruction. */
static __always_inline struct python_memo *memo_of(struct python_memory *memory, struct python_scratch *scratch)
{
	return &memory->memos[mix(scratch->frame, scratch->native) & (PYTHON_MEMOS - 1)];
}

/* A comparison in progress. */
struct python_recall {
	struct python_memory *memory;
	struct python_memo *memo;
	struct python_process *process;
	struct python_scratch *scratch;
	struct memory *native; /* what was read of the native stack; may be null */
	u64 same;
};

/* Where a stack's bytes at an address lie in what was read of it, or more than there is. */
static __always_inline u64 in_window(struct memory *native, u64 address, u64 bytes)
{
	u64 inside = native ? address - native->sp : WINDOW * 8;

	return inside < WINDOW * 8 && inside + bytes <= native->fresh * 8 ? inside : WINDOW * 8;
}

static long read_piece(u32 index, struct python_recall *recall)
{
	struct python_piece *piece = &recall->memo->piece[index & (PYTHON_PIECES - 1)];
	u64 bytes = piece->bytes;

	recall->same = bytes <= PYTHON_PIECE && !bpf_probe_read_user(recall->memory->room + (piece->place & (PYTHON_ROOM - 1)),
								     bytes, (void *)piece->address);
	return !recall->same;
}

static long compare_frame(u32 index, struct python_recall *recall)
{
	struct python_process *process = recall->process;
	struct python_seen *seen;
	const u8 *frame;

	if (index >= PYTHON_SEEN)
		return 1;
	seen = &recall->memo->seen[index];
	if (seen->place == PYTHON_ON_STACK) {
		u64 inside = in_window(recall->native, seen->address, process->frame_size);

		if (inside <= WINDOW * 8 - PYTHON_FRAME_BYTES && recall->native) {
			frame = (const u8 *)recall->native->window + inside;
		} else {
			u8 *room = recall->memory->room + PYTHON_ROOM;

			recall->same = process->frame_size <= PYTHON_FRAME_BYTES &&
				       !bpf_probe_read_user(room, process->frame_size, (void *)seen->address);
			if (!recall->same)
				return 1;
			frame = room;
		}
	} else {
		frame = recall->memory->room + (seen->place & (PYTHON_ROOM - 1));
	}
	recall->same = field_word(frame, process->frame_previous) == seen->previous &&
		       field_word(frame, process->frame_code) == seen->code &&
		       instruction_word(process, frame) == seen->instruction && entry_byte(process, frame) == seen->entry;
	return !recall->same;
}

static long compare_code(u32 index, struct python_recall *recall)
{
	u32 place = index & (PYTHON_CODES - 1);

	recall->same = read_tag(recall->scratch, recall->process, recall->memo->code[place].code) == recall->memo->code[place].tag;
	return !recall->same;
}

/* The stack's id if it is the one remembered, else 0. */
static __always_inline u64 recall_python(struct python_memory *memory, struct python_memo *memo, struct memory *native,
					 struct python_process *process, struct python_scratch *scratch)
{
	struct python_recall recall = {
		.memory = memory,
		.memo = memo,
		.process = process,
		.scratch = scratch,
		.native = native,
		.same = 1,
	};

	if (memo->frame != scratch->frame || memo->made != scratch->made || memo->image != scratch->image)
		return 0;
	bpf_loop(memo->pieces, read_piece, &recall, 0);
	if (recall.same)
		bpf_loop(memo->seen_count, compare_frame, &recall, 0);
	if (recall.same && memo->code_count)
		bpf_loop(memo->code_count, compare_code, &recall, 0);
	return recall.same ? memo->id : 0;
}

/* Begins to note what a walk reads. */
static __always_inline void begin_python_memo(struct python_memo *memo, struct python_scratch *scratch)
{
	memo->frame = 0;
	memo->made = scratch->made;
	memo->image = scratch->image;
	memo->pieces = 0;
	memo->seen_count = 0;
	memo->code_count = 0;
}

/* What the walk met cannot be compared later: no memo then. */
static __always_inline void spoil_python_memo(struct python_memo *memo)
{
	memo->pieces = PYTHON_PIECES + 1;
}

/* Notes a frame, of which `frame` has a copy; the native stack begins at `sp`. */
static __always_inline void note_frame(struct python_memo *memo, struct python_process *process, u64 sp, u64 address,
				       const u8 *frame)
{
	u32 pieces = memo->pieces, count = memo->seen_count, size = process->frame_size, place = PYTHON_ROOM;
	struct python_piece *piece = &memo->piece[(pieces - 1) & (PYTHON_PIECES - 1)];
	struct python_seen *seen;
	u64 below;

	if (pieces > PYTHON_PIECES)
		return;
	if (count >= PYTHON_SEEN) {
		spoil_python_memo(memo);
		return;
	}
	seen = &memo->seen[count];
	seen->address = address;
	seen->previous = field_word(frame, process->frame_previous);
	seen->code = field_word(frame, process->frame_code);
	seen->instruction = instruction_word(process, frame);
	seen->entry = entry_byte(process, frame);
	seen->place = PYTHON_ON_STACK;
	memo->seen_count = count + 1;
	if (address - sp < WINDOW * 8)
		return;
	if (pieces)
		place = piece->place;
	below = piece->address - address;
	if (pieces && below < PYTHON_NEAR && piece->bytes + below <= PYTHON_PIECE && below <= place) {
		piece->address = address;
		piece->bytes += below;
		piece->place = place - below;
	} else {
		if (pieces == PYTHON_PIECES || size > place) {
			spoil_python_memo(memo);
			return;
		}
		piece = &memo->piece[pieces & (PYTHON_PIECES - 1)];
		piece->address = address;
		piece->bytes = size;
		piece->place = place - size;
		memo->pieces = pieces + 1;
	}
	seen->place = piece->place;
}

/* Notes a code object that was looked at. */
static __always_inline void note_code(struct python_memo *memo, u64 code, u64 tag)
{
	u32 count = memo->code_count;

	if (count >= PYTHON_CODES) {
		spoil_python_memo(memo);
		return;
	}
	memo->code[count].code = code;
	memo->code[count].tag = tag;
	memo->code_count = count + 1;
}

/* The walk is over: the memo counts from now on, if all fitted. */
static __always_inline void end_python_memo(struct python_memo *memo, u64 frame, u64 id)
{
	if (memo->pieces > PYTHON_PIECES)
		return;
	memo->id = id;
	memo->frame = frame;
}

#endif
