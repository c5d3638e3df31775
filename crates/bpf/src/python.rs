//! Python in the kernel: which processes are Python, and the frames and code objects read there.
//!
//! The Rust side of `bpf/shared/python.h`.

use std::{fs::Metadata, mem::offset_of, os::unix::fs::MetadataExt};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut};

use crate::contract::{
    self, bytes_of,
    types::{
        limit, python_code_record, python_frame, python_frame_flag, python_kind, python_program, python_program_key,
        python_stack_flag, python_stack_record, python_text,
    },
};

/// The maximum number of frames that the probe hashes, with the interpreter's internal ones.
pub const PYTHON_STEPS: usize = limit::PYTHON_STEPS.0 as usize;

/// How a version of Python stores its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum PythonKind {
    /// Up to 3.10: frame objects, and a native call of the interpreter's loop for each.
    Objects = python_kind::PYTHON_OBJECTS.0 as u16,
    /// 3.11: a frame says whether the loop was entered for it.
    Flags = python_kind::PYTHON_FLAGS.0 as u16,
    /// From 3.12: an internal frame is below the one that the loop was entered for.
    Shims = python_kind::PYTHON_SHIMS.0 as u16,
}

/// Where a process has its Python runtime, and its layout; `bpf/shared/python.h` describes each field.
pub use crate::contract::types::python_process as PythonProcess;

impl PartialEq for PythonProcess {
    fn eq(&self, other: &Self) -> bool {
        bytes_of(self) == bytes_of(other)
    }
}

/// `PYTHON_LOADED`
const LOADED: u32 = 1 << 31;

/// Declares Python processes to the kernel.
#[derive(Debug)]
pub struct PythonMaps {
    processes: MapHandle,
    programs: MapHandle,
}

impl PythonMaps {
    pub(crate) fn new(processes: &MapMut<'_>, programs: &MapMut<'_>) -> Result<Self, libbpf_rs::Error> {
        Ok(Self { processes: processes.try_into()?, programs: programs.try_into()? })
    }

    /// Declares a program file: what executes it from now on has Python frames at once. `process` has the addresses of the file, and
    /// `code` is the lowest one of its code. The file must stay open: another one could get its inode.
    pub fn declare_program(&self, file: &Metadata, code: u64, process: &PythonProcess) -> Result<(), libbpf_rs::Error> {
        let program = python_program { code, process: *process };
        self.programs.update(bytes_of(&program_key(file)), bytes_of(&program), MapFlags::ANY)
    }

    /// Takes the declaration of a program file back.
    pub fn forget_program(&self, file: &Metadata) {
        // There may have been no room for it.
        let _ = self.programs.delete(bytes_of(&program_key(file)));
    }

    /// Declares an image: from now on its Python frames are read, and those of its children.
    pub fn declare(&self, image: u32, process: &PythonProcess) -> Result<(), libbpf_rs::Error> {
        self.processes.update(&image.to_ne_bytes(), bytes_of(process), MapFlags::ANY)
    }

    /// Declares a process that has loaded CUDA, for the image that its first call creates.
    pub fn declare_loaded(&self, pid: u32, process: &PythonProcess) -> Result<(), libbpf_rs::Error> {
        self.declare(pid | LOADED, process)
    }

    /// Takes the declaration of [`Self::declare_loaded`] back.
    pub fn forget_loaded(&self, pid: u32) {
        self.forget(pid | LOADED);
    }

    /// Removes an ended image.
    pub fn forget(&self, image: u32) {
        // A child of an image that was never declared has no entry.
        let _ = self.processes.delete(&image.to_ne_bytes());
    }
}

fn program_key(file: &Metadata) -> python_program_key {
    let (major, minor) = (libc::major(file.dev()), libc::minor(file.dev()));
    python_program_key { device: u64::from(major << 20 | minor), inode: file.ino() }
}

/// One Python frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Address of the code object.
    pub code: u64,
    /// Distinguishes code objects at the same address.
    pub tag: u64,
    /// Offset in bytes from the code's first instruction; up to 3.10 as in the frame object.
    pub instruction: u32,
    /// The interpreter's loop was entered for this frame: it corresponds to a native frame.
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
    /// Whether there were more frames than are kept.
    pub truncated: bool,
    /// Whether the outermost frames could not be read.
    pub broken: bool,
}

impl PythonStack {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        const FRAMES: usize = offset_of!(python_stack_record, frames);
        let stack: python_stack_record = contract::read_head(bytes, FRAMES)?;
        let frame = |frame: python_frame| PythonFrame {
            code: frame.code,
            tag: frame.tag,
            instruction: frame.instruction,
            entry: frame.flags & python_frame_flag::PYTHON_ENTRY.0 != 0,
        };
        let frames = contract::read_several(bytes, FRAMES, stack.count.into())?;
        let has = |flag: python_stack_flag| u32::from(stack.flags) & flag.0 != 0;
        Some(Self {
            id: stack.id,
            image: stack.image,
            frames: frames.into_iter().map(frame).collect(),
            truncated: has(python_stack_flag::PYTHON_STACK_TRUNCATED),
            broken: has(python_stack_flag::PYTHON_STACK_BROKEN),
        })
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
    /// The function's qualified name, or its name if Python keeps no other; empty if it could not be read.
    pub name: String,
    /// The source file; empty if it could not be read.
    pub file: String,
    /// The line table, in the format of this Python version; truncated at 4 KiB.
    pub lines: Vec<u8>,
}

impl PythonCode {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        const LINES: usize = offset_of!(python_code_record, lines);
        let code: python_code_record = contract::read_head(bytes, LINES)?;
        let mut name = text(&code.name_room, code.name)?;
        if code.name.truncated != 0 {
            name.push('\u{2026}');
        }
        Some(Self {
            image: code.image,
            code: code.code,
            tag: code.tag,
            first_line: code.first_line,
            name,
            file: text(&code.file_room, code.file)?,
            lines: bytes.get(LINES..)?.get(..code.lines_bytes.into())?.to_vec(),
        })
    }
}

/// Decodes text with characters of 1, 2 or 4 bytes each (Latin-1, UCS-2, UCS-4).
fn text(room: &[u8], text: python_text) -> Option<String> {
    let bytes = room.get(..text.bytes.into())?;
    let char = |number| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some(match text.width {
        2 => bytes.chunks_exact(2).map(|c| char(u16::from_ne_bytes([c[0], c[1]]).into())).collect(),
        4 => bytes.chunks_exact(4).map(|c| char(u32::from_ne_bytes([c[0], c[1], c[2], c[3]]))).collect(),
        _ => bytes.iter().map(|b| char::from(*b)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that characters of every width are decoded, and that a truncated name is marked.
    #[test]
    fn text_of_every_width_is_decoded() {
        let name = |bytes: &[u8], width, truncated| {
            let mut code = python_code_record::default();
            code.name_room[..bytes.len()].copy_from_slice(bytes);
            code.name = python_text { bytes: bytes.len() as u16, width, truncated };
            PythonCode::parse(bytes_of(&code)).expect("a code object").name
        };
        assert_eq!(name(b"caf\xe9", 1, 0), "caf\u{e9}");
        assert_eq!(name(&[0x16, 0x04, b'x', 0], 2, 0), "\u{416}x");
        assert_eq!(name(&[0, 0xf6, 1, 0], 4, 0), "\u{1f600}");
        assert_eq!(name(b"long", 1, 1), "long\u{2026}");
        assert_eq!(text(&[0; 256], python_text { bytes: 300, width: 1, truncated: 0 }), None);
    }
}
