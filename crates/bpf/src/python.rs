//! Python on the kernel's side: which processes are Python, and the frames and code objects that were read there.
//!
//! The Rust side of the Python part of `bpf/shared.h`.

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut};

use crate::record::Fields;

const NAME: usize = 256;
const FILE: usize = 512;
const STACK_TRUNCATED: u16 = 1;
const ENTRY: u32 = 1;

/// How a version of Python keeps its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum PythonKind {
    /// To 3.10: frame objects, and a native call of the interpreter's loop for each.
    Objects = 1,
    /// 3.11: a frame says whether the loop was entered for it.
    Flags = 2,
    /// From 3.12: a frame of the interpreter's own lies below the one that the loop was entered for.
    Shims = 3,
}

/// Where a process has its Python runtime, and how that lays things out: `struct python_process`, where each field is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct PythonProcess {
    pub interpreters: u64,
    pub interpreter_next: u32,
    pub interpreter_threads: u32,
    pub versions: u64,
    pub interpreter_versions: u32,
    pub pad: u32,
    pub thread_size: u16,
    pub thread_prev: u16,
    pub thread_next: u16,
    pub thread_interpreter: u16,
    pub thread_id: u16,
    pub thread_frame: u16,
    pub frame_link: u16,
    pub frame_size: u16,
    pub frame_previous: u16,
    pub frame_code: u16,
    pub frame_instruction: u16,
    pub frame_owner: u16,
    pub frame_entry: u16,
    pub code_first_line: u16,
    pub code_name: u16,
    pub code_file: u16,
    pub code_lines: u16,
    pub code_tag: u16,
    pub code_tag_words: u16,
    pub code_start: u16,
    pub bytes_size: u16,
    pub bytes_data: u16,
    pub text_length: u16,
    pub text_state: u16,
    pub text_ascii: u16,
    pub text_compact: u16,
    pub text_kind_shift: u16,
    pub kind: PythonKind,
}

const _: () = assert!(size_of::<PythonProcess>() == 88);

impl PythonProcess {
    fn bytes(&self) -> &[u8] {
        // SAFETY: a plain struct without padding, as its size shows: 2 * 8 + 4 * 4 + 28 * 2 bytes.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// Tells the kernel which processes are Python.
#[derive(Debug)]
pub struct PythonMaps {
    processes: MapHandle,
}

impl PythonMaps {
    pub(crate) fn new(processes: &MapMut<'_>) -> Result<Self, libbpf_rs::Error> {
        Ok(Self { processes: processes.try_into()? })
    }

    /// From now on this image's Python frames are read; those of its children too.
    pub fn declare(&self, image: u32, process: &PythonProcess) -> Result<(), libbpf_rs::Error> {
        self.processes.update(&image.to_ne_bytes(), process.bytes(), MapFlags::ANY)
    }

    /// An image is gone.
    pub fn forget(&self, image: u32) {
        // A child of an image that was never declared has no entry.
        let _ = self.processes.delete(&image.to_ne_bytes());
    }
}

/// One Python frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Address of the code object.
    pub code: u64,
    /// Tells apart code objects that came to lie at the same address.
    pub tag: u64,
    /// Bytes from the code's first instruction; to 3.10 as the frame object has it.
    pub instruction: u32,
    /// The interpreter's loop was entered for this frame: it answers to a native frame.
    pub entry: bool,
}

/// The Python frames of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonStack {
    /// Its id, a hash of image and frames.
    pub id: u64,
    /// The process image.
    pub image: u32,
    /// Innermost first.
    pub frames: Vec<PythonFrame>,
    /// There were more frames than are kept.
    pub truncated: bool,
    /// The outermost frames could not be read.
    pub broken: bool,
}

impl PythonStack {
    pub(crate) fn parse(image: u32, f: &mut Fields<'_>) -> Option<Self> {
        let (id, _time, _pid) = (f.u64()?, f.u64()?, f.u32()?);
        let (count, flags) = (f.u16()?, f.u16()?);
        let frame = |_| {
            let (code, tag, instruction) = (f.u64()?, f.u64()?, f.u32()?);
            Some(PythonFrame { code, tag, instruction, entry: f.u32()? & ENTRY != 0 })
        };
        let frames = (0..count).map(frame).collect::<Option<_>>()?;
        let truncated = flags & STACK_TRUNCATED != 0;
        Some(Self { id, image, frames, truncated, broken: flags & !STACK_TRUNCATED != 0 })
    }
}

/// A Python code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonCode {
    /// The process image.
    pub image: u32,
    /// Its address.
    pub code: u64,
    /// As in [`PythonFrame`].
    pub tag: u64,
    /// The line it begins at.
    pub first_line: u32,
    /// The function's qualified name, or its name where Python keeps no other; empty if it could not be read.
    pub name: String,
    /// The source file; empty if it could not be read.
    pub file: String,
    /// The table of lines, in the form of this Python's version; cut off at 4 KiB.
    pub lines: Vec<u8>,
}

impl PythonCode {
    pub(crate) fn parse(image: u32, f: &mut Fields<'_>) -> Option<Self> {
        let (code, tag, first_line) = (f.u64()?, f.u64()?, f.u32()?);
        let (name_bytes, name_width) = (f.u16()?, f.u16()?);
        let (file_bytes, file_width) = (f.u16()?, f.u16()?);
        let (lines_bytes, _truncated) = (f.u16()?, f.u16()?);
        let name = text(f.bytes(NAME)?, name_bytes, name_width)?;
        let file = text(f.bytes(FILE)?, file_bytes, file_width)?;
        let lines = f.bytes(lines_bytes.into())?.to_vec();
        Some(Self { image, code, tag, first_line, name, file, lines })
    }
}

/// Text of characters of 1, 2 or 4 bytes each (Latin-1, UCS-2, UCS-4). What was cut off is marked.
fn text(room: &[u8], bytes: u16, width_and_truncated: u16) -> Option<String> {
    let bytes = room.get(..bytes.into())?;
    let [width, truncated] = width_and_truncated.to_ne_bytes();
    let char = |number| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
    let mut text: String = match width {
        2 => bytes.chunks_exact(2).map(|c| char(u16::from_ne_bytes([c[0], c[1]]).into())).collect(),
        4 => bytes.chunks_exact(4).map(|c| char(u32::from_ne_bytes([c[0], c[1], c[2], c[3]]))).collect(),
        _ => bytes.iter().map(|b| char::from(*b)).collect(),
    };
    if truncated != 0 && room.len() == NAME {
        text.push('\u{2026}');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters of every width become text; a name that was cut off says so.
    #[test]
    fn texts_of_every_width() {
        let room = |bytes: &[u8]| [bytes, &vec![0; NAME - bytes.len()]].concat();
        let width = |width: u8, truncated: u8| u16::from_ne_bytes([width, truncated]);
        assert_eq!(text(&room(b"caf\xe9"), 4, width(1, 0)).as_deref(), Some("caf\u{e9}"));
        assert_eq!(text(&room(&[0x16, 0x04, b'x', 0]), 4, width(2, 0)).as_deref(), Some("\u{416}x"));
        assert_eq!(text(&room(&[0, 0xf6, 1, 0]), 4, width(4, 0)).as_deref(), Some("\u{1f600}"));
        assert_eq!(text(&room(b"long"), 4, width(1, 1)).as_deref(), Some("long\u{2026}"));
        assert_eq!(text(&room(b""), 300, width(1, 0)), None);
    }
}
