/* SPDX-License-Identifier: MIT */
/* Python: how a process stores its frames, its stacks, and its code objects. */
#ifndef WARPSCOPE_SHARED_PYTHON_H
#define WARPSCOPE_SHARED_PYTHON_H

#include "common.h"

/* How a version of Python stores its frames. */
enum python_kind {
	PYTHON_OBJECTS = 1, /* up to 3.10: frame objects, and a native call of the interpreter's loop for each */
	PYTHON_FLAGS = 2, /* 3.11: a frame says whether the loop was entered for it */
	PYTHON_SHIMS = 3, /* from 3.12: an internal frame is below the one that the loop was entered for */
};
/* FRAME_OWNED_BY_CSTACK; from 3.14 on FRAME_OWNED_BY_INTERPRETER, and the former is 4. */
#define PYTHON_OWNED_BY_C_STACK 3

/* Where a process has its Python runtime, and its layout: offsets in bytes. */
struct python_process {
	__u64 interpreters; /* address of the first interpreter's address */
	__u32 interpreter_next;
	__u32 interpreter_threads;
	__u64 versions; /* address of a count of the code objects created so far; 0 if unknown */
	__u32 interpreter_versions; /* if not 0: its offset in the interpreter */
	__u32 pad;
	__u16 thread_size; /* large enough for the fields below */
	__u16 thread_prev;
	__u16 thread_next;
	__u16 thread_interpreter;
	__u16 thread_id;
	__u16 thread_frame;
	__u16 frame_link; /* if not 0: thread_frame points to a structure with the frame's address at this offset plus 64 */
	__u16 frame_size;
	__u16 frame_previous;
	__u16 frame_code;
	__u16 frame_instruction;
	__u16 frame_owner;
	__u16 frame_entry;
	__u16 code_first_line;
	__u16 code_name;
	__u16 code_file;
	__u16 code_lines;
	__u16 code_tag; /* words that distinguish code objects at the same address */
	__u16 code_tag_words;
	__u16 code_start;
	__u16 bytes_size;
	__u16 bytes_data;
	__u16 text_length;
	__u16 text_state;
	__u16 text_ascii;
	__u16 text_compact;
	__u16 text_kind_shift;
	__u16 kind;
};

/* A program file that contains a Python. */
struct python_program_key {
	__u64 device; /* as in the kernel: major << 20 | minor */
	__u64 inode;
};

struct python_program {
	__u64 code; /* the lowest address of its code */
	struct python_process process; /* with addresses of the file */
};

enum python_frame_flag {
	PYTHON_ENTRY = 1, /* the interpreter's loop was entered for this frame: it corresponds to a native frame */
};

struct python_frame {
	__u64 code;
	__u64 tag;
	__u32 instruction; /* offset in bytes from the start of the code; up to 3.10 as in the frame object */
	__u32 flags;
};

enum python_stack_flag {
	PYTHON_STACK_TRUNCATED = 1,
	PYTHON_STACK_BROKEN = 2,
};

struct python_stack_record {
	__u32 type;
	__u32 image;
	__u64 id;
	__u64 time;
	__u32 pid;
	__u16 count;
	__u16 flags;
	/* Innermost first. */
	struct python_frame frames[MAX_PYTHON_FRAMES];
};
#define PYTHON_STACK_HEADER 32

_Static_assert(__builtin_offsetof(struct python_stack_record, frames) == PYTHON_STACK_HEADER, "python_stack_record");

#define PYTHON_NAME 256
#define PYTHON_FILE 512
#define PYTHON_LINES 4096

/* Characters of 1, 2 or 4 bytes; a width of 0 means that they could not be read. */
struct python_text {
	__u16 bytes;
	__u8 width;
	__u8 truncated;
};

/* The name, file and lines of a code object. */
struct python_code_record {
	__u32 type;
	__u32 image;
	__u64 code;
	__u64 tag;
	__u32 first_line;
	struct python_text name;
	struct python_text file;
	__u16 lines_bytes;
	__u16 lines_truncated;
	__u8 name_room[PYTHON_NAME];
	__u8 file_room[PYTHON_FILE];
	__u8 lines[PYTHON_LINES];
};
#define PYTHON_CODE_HEADER (40 + PYTHON_NAME + PYTHON_FILE)

_Static_assert(__builtin_offsetof(struct python_code_record, lines) == PYTHON_CODE_HEADER, "python_code_record");

#endif
