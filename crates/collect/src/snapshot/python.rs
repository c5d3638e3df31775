//! Python frames of another process, read from outside: `bpf/python.h` has the same walk in the kernel.
//!
//! Every loop is bounded: the process keeps running while its lists are read, and may be hostile.

use std::collections::HashMap;

use bpf::PythonCode;
use symbols::python::{Frames, Interpreter};

use super::memory::Memory;

const MOST_INTERPRETERS: usize = 64;
const MOST_STATES: usize = 1024;
const MOST_FRAMES: usize = 1024;
/// The most bytes of a name, of a path, and of a line table.
const NAME: usize = 256;
const FILE: usize = 1024;
const LINES: usize = 4096;
/// From this owner on, a frame is one of the interpreter itself, below the frame that its loop was entered for.
const OWNED_BY_C_STACK: u8 = 3;

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its address.
    pub at: u64,
    /// Of the code object.
    pub code: u64,
    /// The position in it.
    pub instruction: u32,
    /// The interpreter's loop was entered for it.
    pub entry: bool,
}

/// The Python frames of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stack {
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// They reach the outermost one.
    pub whole: bool,
}

impl Stack {
    /// Returns how many outermost frames are the same, at the same instruction.
    pub fn common(&self, other: &Self) -> usize {
        self.frames.iter().rev().zip(other.frames.iter().rev()).take_while(|(own, other)| own == other).count()
    }
}

/// The interpreter of a process.
pub(super) struct Python {
    pub interpreter: Interpreter,
    /// The difference between the addresses of the process and those of its file.
    pub bias: u64,
}

impl Python {
    /// Returns the innermost frame of every thread, by the address that identifies the thread.
    pub fn threads(&self, memory: &Memory) -> HashMap<u64, u64> {
        let o = &self.interpreter.offsets;
        let runtime = self.interpreter.runtime.wrapping_add(self.bias);
        let mut found = HashMap::new();
        let mut interpreter = memory.word(runtime.wrapping_add(o.runtime_interpreters.into()));
        for _ in 0..MOST_INTERPRETERS {
            if interpreter == 0 {
                break;
            }
            let mut state = memory.word(interpreter.wrapping_add(o.interpreter_threads.into()));
            for _ in 0..MOST_STATES {
                if state == 0 {
                    break;
                }
                let field = |offset: u16| memory.word(state.wrapping_add(offset.into()));
                let mut frame = field(o.thread_frame);
                if let Some(link) = o.frame_link {
                    frame = if frame == 0 { 0 } else { memory.word(frame.wrapping_add(link.into())) };
                }
                // Up to 3.11, the state of a thread that is being started has the id of the thread that starts it.
                let known = found.entry(field(o.thread_id)).or_insert(frame);
                if *known == 0 {
                    *known = frame;
                }
                state = field(o.thread_next);
            }
            interpreter = memory.word(interpreter.wrapping_add(o.interpreter_next.into()));
        }
        found
    }

    /// Reads a stack from its innermost frame on.
    pub fn stack(&self, memory: &Memory, mut at: u64) -> Stack {
        let o = &self.interpreter.offsets;
        let fields = [o.frame_previous, o.frame_code, o.frame_instruction, o.frame_owner, o.frame_entry];
        let size = usize::from(fields.into_iter().max().unwrap_or(0)) + 8;
        let mut frames: Vec<Frame> = Vec::new();
        for _ in 0..MOST_FRAMES {
            if at == 0 {
                return Stack { frames, whole: true };
            }
            let bytes = memory.bytes(at, size);
            if bytes.len() < size {
                break;
            }
            let word = |offset: u16| {
                let at = usize::from(offset);
                bytes[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            };
            let frame = at;
            at = word(o.frame_previous);
            if o.frames == Frames::Shims && bytes[usize::from(o.frame_owner)] >= OWNED_BY_C_STACK {
                if let Some(last) = frames.last_mut() {
                    last.entry = true;
                }
                continue;
            }
            // References may have tags in their lowest bits.
            let code = word(o.frame_code) & !7;
            let instruction = match o.frames {
                Frames::Objects => word(o.frame_instruction),
                _ => word(o.frame_instruction).wrapping_sub(code.wrapping_add(o.code_start.into())),
            } as u32;
            let entry = match o.frames {
                Frames::Objects => true,
                Frames::Flags => bytes[usize::from(o.frame_entry)] != 0,
                Frames::Shims => false,
            };
            frames.push(Frame { at: frame, code, instruction, entry });
        }
        Stack { frames, whole: false }
    }

    /// Reads a code object.
    pub fn code(&self, memory: &Memory, code: u64) -> PythonCode {
        let o = &self.interpreter.offsets;
        let field = |offset: u16| memory.word(code.wrapping_add(offset.into()));
        let lines = field(o.code_lines);
        let bytes = memory.word(lines.wrapping_add(o.bytes_size.into()));
        let most = usize::try_from(bytes).unwrap_or(usize::MAX).min(LINES);
        PythonCode {
            image: 0,
            code,
            tag: 0,
            first_line: field(o.code_first_line) as u32,
            name: self.text(memory, field(o.code_name), NAME, false),
            file: self.text(memory, field(o.code_file), FILE, true),
            lines: memory.bytes(lines.wrapping_add(o.bytes_data.into()), most),
        }
    }

    /// Reads a str object: its first bytes, or its last ones.
    fn text(&self, memory: &Memory, object: u64, most: usize, last: bool) -> String {
        let o = &self.interpreter.offsets;
        let state = memory.word(object.wrapping_add(o.text_state.into())) >> o.text_kind_shift;
        // kind:3 (bytes per character), compact:1, ascii:1
        let width = (state & 7) as usize;
        if state & 8 == 0 || !matches!(width, 1 | 2 | 4) {
            return String::new();
        }
        let data = object.wrapping_add(if state & 16 == 0 { o.text_compact } else { o.text_ascii }.into());
        let length = memory.word(object.wrapping_add(o.text_length.into()));
        let length = usize::try_from(length).unwrap_or(usize::MAX).saturating_mul(width);
        let skip = if last { length.saturating_sub(most) } else { 0 };
        let bytes = memory.bytes(data.wrapping_add(skip as u64), length.min(most));
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        bytes.chunks_exact(width).map(|c| char::from_u32(number(c)).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }
}
