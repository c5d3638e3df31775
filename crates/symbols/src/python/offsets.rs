//! The layout of the structures that hold CPython's frames, by version.
//!
//! Up to 3.12 these are tables, taken from the headers; a test derives them again from the headers of every installed
//! version. From 3.13 on `_PyRuntime` begins with a self-description, `_Py_DebugOffsets`, made for this purpose.
//!
//! Free-threaded builds have a different layout and are not supported until one has been tested; a note says so.

/// How frames are stored, and how to recognise those for which the interpreter's loop was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// Up to 3.10: frame objects, with a native call of the loop for each.
    Objects,
    /// 3.11: each frame has a flag.
    Flags,
    /// From 3.12: a frame of the interpreter itself is below.
    Shims,
}

/// Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// How frames are stored.
    pub frames: Frames,
    /// `_PyRuntime`: `interpreters.head`
    pub runtime_interpreters: u32,
    /// `PyInterpreterState`: `next`
    pub interpreter_next: u32,
    /// `PyInterpreterState`: `threads.head`, once `tstate_head`
    pub interpreter_threads: u32,
    /// `PyInterpreterState`: `func_state.next_version`, from 3.13 on: the `co_version` of the next code object.
    pub interpreter_versions: Option<u32>,
    /// `PyThreadState`: `prev`
    pub thread_prev: u16,
    /// `PyThreadState`: `next`
    pub thread_next: u16,
    /// `PyThreadState`: `interp`
    pub thread_interpreter: u16,
    /// `PyThreadState`: `thread_id`, what `pthread_self` returns
    pub thread_id: u16,
    /// `PyThreadState`: `frame`, `current_frame`, or in 3.11 and 3.12 `cframe`
    pub thread_frame: u16,
    /// `_PyCFrame`: `current_frame`
    pub frame_link: Option<u16>,
    /// `PyFrameObject`: `f_back`; `_PyInterpreterFrame`: `previous`
    pub frame_previous: u16,
    /// `f_code`, `f_executable`
    pub frame_code: u16,
    /// `f_lasti`; `prev_instr`, `instr_ptr`
    pub frame_instruction: u16,
    /// `_PyInterpreterFrame`: `owner`
    pub frame_owner: u16,
    /// `_PyInterpreterFrame`: `is_entry`
    pub frame_entry: u16,
    /// `PyCodeObject`: `co_firstlineno`
    pub code_first_line: u16,
    /// `co_qualname`, before 3.11 `co_name`
    pub code_name: u16,
    /// `co_filename`
    pub code_file: u16,
    /// `co_linetable`, `co_lnotab`
    pub code_lines: u16,
    /// Distinguishes code objects that reuse an address. From 3.12 on the word that ends with `co_version`, which is
    /// unique; before that everything from `co_firstlineno` to the line table's address.
    pub code_tag: u16,
    /// Its length in words of 8 bytes.
    pub code_tag_words: u16,
    /// `co_code_adaptive`
    pub code_start: u16,
    /// `PyBytesObject`: `ob_size`
    pub bytes_size: u16,
    /// `PyBytesObject`: `ob_sval`
    pub bytes_data: u16,
    /// `PyASCIIObject`: `length`
    pub text_length: u16,
    /// `PyASCIIObject`: `state`
    pub text_state: u16,
    /// Size of `PyASCIIObject`
    pub text_ascii: u16,
    /// Size of `PyCompactUnicodeObject`
    pub text_compact: u16,
    /// The lowest bit of `state.kind`
    pub text_kind_shift: u16,
}

const V3_8: Offsets = Offsets {
    frames: Frames::Objects,
    runtime_interpreters: 32,
    interpreter_next: 0,
    interpreter_threads: 8,
    interpreter_versions: None,
    thread_prev: 0,
    thread_next: 8,
    thread_interpreter: 16,
    thread_id: 176,
    thread_frame: 24,
    frame_link: None,
    frame_previous: 24,
    frame_code: 32,
    frame_instruction: 104,
    frame_owner: 0,
    frame_entry: 0,
    code_first_line: 40,
    code_name: 112,
    code_file: 104,
    code_lines: 120,
    code_tag: 40,
    code_tag_words: 11,
    code_start: 0,
    bytes_size: 16,
    bytes_data: 32,
    text_length: 16,
    text_state: 32,
    text_ascii: 48,
    text_compact: 72,
    text_kind_shift: 2,
};

const V3_10: Offsets = Offsets { frame_instruction: 96, ..V3_8 };

const V3_11: Offsets = Offsets {
    frames: Frames::Flags,
    runtime_interpreters: 40,
    interpreter_threads: 16,
    thread_id: 152,
    thread_frame: 56,
    frame_link: Some(8),
    frame_previous: 48,
    frame_instruction: 56,
    frame_owner: 69,
    frame_entry: 68,
    code_first_line: 72,
    code_name: 128,
    code_file: 112,
    code_lines: 136,
    code_tag: 72,
    code_tag_words: 9,
    code_start: 184,
    ..V3_10
};

const V3_12: Offsets = Offsets {
    frames: Frames::Shims,
    interpreter_threads: 72,
    thread_id: 136,
    frame_link: Some(0),
    frame_previous: 8,
    frame_code: 0,
    frame_owner: 70,
    frame_entry: 0,
    code_first_line: 68,
    code_tag: 88,
    code_tag_words: 1,
    code_start: 192,
    text_ascii: 40,
    text_compact: 56,
    ..V3_11
};

impl Offsets {
    /// Returns the offsets of a version without a self-description: 3.8 to 3.12.
    pub fn of_version(minor: u8) -> Option<Self> {
        Some(match minor {
            8 | 9 => V3_8,
            10 => V3_10,
            11 => V3_11,
            12 => V3_12,
            _ => return None,
        })
    }

    /// Whether the start of `_PyRuntime` describes a build without the global lock.
    pub(crate) fn is_free_threaded(bytes: &[u8]) -> bool {
        bytes.starts_with(b"xdebugpy") && bytes.get(16..24).is_some_and(|word| word != [0; 8])
    }

    /// Parses the self-description of `_PyRuntime`, from 3.13 on.
    pub fn of_runtime(minor: u8, bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| Some(u64::from_le_bytes(bytes.get(8 * index..8 * index + 8)?.try_into().ok()?));
        if bytes.get(..8)? != b"xdebugpy" || word(1)? >> 16 & 0xff != u64::from(minor) || word(1)? >> 24 != 3 {
            return None;
        }
        let places = Places::of_version(minor)?;
        let large = |index| u32::try_from(word(index)?).ok();
        let small = |index| u16::try_from(word(index)?).ok();
        // Such builds have different objects and strings, and from 3.14 on each thread may run its own copy of the
        // code.
        if Self::is_free_threaded(bytes) {
            return None;
        }
        let (code_first_line, size) = (small(places.code + 5)?, word(6)?);
        Some(Self {
            frames: Frames::Shims,
            runtime_interpreters: large(5)?,
            interpreter_next: large(8)?,
            interpreter_threads: large(9)?,
            interpreter_versions: VERSIONS
                .iter()
                .find(|known| (known.0, known.1) == (minor, size))
                .map(|known| known.2),
            thread_prev: small(places.thread + 1)?,
            thread_next: small(places.thread + 2)?,
            thread_interpreter: small(places.thread + 3)?,
            thread_frame: small(places.thread + 4)?,
            thread_id: small(places.thread + 5)?,
            frame_link: None,
            frame_previous: small(places.frame + 1)?,
            frame_code: small(places.frame + 2)?,
            frame_instruction: small(places.frame + 3)?,
            frame_owner: small(places.frame + 5)?,
            frame_entry: 0,
            code_file: small(places.code + 1)?,
            code_name: small(places.code + 3)?,
            code_lines: small(places.code + 4)?,
            code_first_line,
            // co_firstlineno, co_nlocalsplus, co_framesize, co_nlocals, co_ncellvars, co_nfreevars, co_version: ints.
            code_tag: code_first_line.checked_add(20)?,
            code_tag_words: 1,
            code_start: small(places.code + 9)?,
            bytes_size: small(places.bytes + 1)?,
            bytes_data: small(places.bytes + 2)?,
            text_state: small(places.text + 1)?,
            text_length: small(places.text + 2)?,
            text_ascii: small(places.text + 3)?,
            text_compact: small(places.text + 3)?.checked_add(16)?,
            text_kind_shift: 2,
        })
    }
}

/// The offset of `func_state.next_version` in `PyInterpreterState`, which `_Py_DebugOffsets` lacks: minor version, the
/// structure's size, the offset. The size identifies the structures from which the offsets were taken: 3.13.0, 3.14.10.
const VERSIONS: [(u8, u64, u32); 2] = [(13, 194_968, 17_000), (14, 225_864, 14_256)];

/// The positions in `_Py_DebugOffsets` that moved between versions: indices of 8-byte words.
struct Places {
    thread: usize,
    frame: usize,
    code: usize,
    bytes: usize,
    text: usize,
}

impl Places {
    fn of_version(minor: u8) -> Option<Self> {
        match minor {
            13 => Some(Self { thread: 19, frame: 28, code: 34, bytes: 64, text: 67 }),
            14 => Some(Self { thread: 22, frame: 31, code: 39, bytes: 74, text: 77 }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fs, path::PathBuf, process::Command};

    use super::*;
    use crate::python::{
        coverage::not_covered,
        pythons::{Python, installed},
    };

    const HEADERS: &str = include_str!("offsets_test.c");

    /// Reads the offsets from a version's headers; `None` if they are not installed.
    fn from_headers(minor: u8, python: &PathBuf) -> Option<Offsets> {
        let print = "import sysconfig; print(sysconfig.get_path('include'))";
        let output = Command::new(python).args(["-c", print]).output().ok()?;
        let include = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        if !include.join("internal").is_dir() {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let (source, program) = (directory.path().join("offsets.c"), directory.path().join("offsets"));
        fs::write(&source, HEADERS).expect("it can be written");
        let mut compile = Command::new("cc");
        compile.arg("-w").arg("-I").arg(&include).arg("-I").arg(include.join("internal"));
        let compiled = compile.arg("-o").args([&program, &source]).output().expect("there is a compiler");
        assert!(compiled.status.success(), "3.{minor}: {}", String::from_utf8_lossy(&compiled.stderr));
        let output = Command::new(&program).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let values: HashMap<&str, u32> =
            text.lines().filter_map(|l| l.split_once(' ')).map(|(k, v)| (k, v.parse().expect("a number"))).collect();
        let small = |key: &str| values.get(key).map_or(0, |v| u16::try_from(*v).expect("small"));
        Some(Offsets {
            frames: match minor {
                ..=10 => Frames::Objects,
                11 => Frames::Flags,
                _ => Frames::Shims,
            },
            runtime_interpreters: values["runtime_interpreters"],
            interpreter_next: values["interpreter_next"],
            interpreter_threads: values["interpreter_threads"],
            interpreter_versions: values.get("interpreter_versions").copied(),
            thread_prev: small("thread_prev"),
            thread_next: small("thread_next"),
            thread_interpreter: small("thread_interpreter"),
            thread_id: small("thread_id"),
            thread_frame: small("thread_frame"),
            frame_link: values.contains_key("frame_link").then(|| small("frame_link")),
            frame_previous: small("frame_previous"),
            frame_code: small("frame_code"),
            frame_instruction: small("frame_instruction"),
            frame_owner: small("frame_owner"),
            frame_entry: small("frame_entry"),
            code_first_line: small("code_first_line"),
            code_name: small("code_name"),
            code_file: small("code_file"),
            code_lines: small("code_lines"),
            code_tag: small("code_tag"),
            code_tag_words: small("code_tag_words"),
            code_start: small("code_start"),
            bytes_size: small("bytes_size"),
            bytes_data: small("bytes_data"),
            text_length: small("text_length"),
            text_state: small("text_state"),
            text_ascii: small("text_ascii"),
            text_compact: small("text_compact"),
            text_kind_shift: 2,
        })
    }

    /// Check that the tables match the headers, and that from 3.13 on the interpreter's description does too.
    #[test]
    fn offsets_match_the_headers() {
        let mut checked = 0;
        for Python { minor, path: python } in installed() {
            let Some(expected) = from_headers(minor, &python) else {
                not_covered(&format!("offsets of {}: its headers are not installed", python.display()));
                continue;
            };
            checked += 1;
            let found = Offsets::of_version(minor).unwrap_or_else(|| {
                let library = python.parent().and_then(|bin| bin.parent()).expect("it has a prefix").join("lib");
                let library = library.join(format!("libpython3.{minor}.so.1.0"));
                let file = if library.is_file() { &library } else { &python };
                crate::python::Interpreter::find(&fs::File::open(file).expect("it opens"), "")
                    .expect("it is Python")
                    .expect("it is supported")
                    .offsets
            });
            assert_eq!(found, expected, "3.{minor}");
            eprintln!("3.{minor}: matches the headers of {}", python.display());
        }
        assert!(checked > 0, "no CPython with its headers is installed: install Debian's python3-dev, or another");
    }

    /// Check that a build without the global lock is recognised and rejected.
    #[test]
    fn a_free_threaded_runtime_is_rejected() {
        for (minor, version) in [(13, 0x030d_00f0_u64), (14, 0x030e_00f0)] {
            let mut bytes = [b"xdebugpy".as_slice(), &version.to_le_bytes(), &[0; 1008]].concat();
            assert!(Offsets::of_runtime(minor, &bytes).is_some() && !Offsets::is_free_threaded(&bytes));
            bytes[16] = 1;
            assert!(Offsets::of_runtime(minor, &bytes).is_none() && Offsets::is_free_threaded(&bytes));
        }
    }

    /// Check that an unexpected start of the runtime is rejected.
    #[test]
    fn a_malformed_runtime_is_rejected() {
        assert_eq!(Offsets::of_runtime(13, b"xdebugpy"), None);
        assert_eq!(Offsets::of_runtime(13, &[0; 4096]), None);
        let mut bytes = vec![0xff; 4096];
        bytes[..8].copy_from_slice(b"xdebugpy");
        assert_eq!(Offsets::of_runtime(13, &bytes), None);
    }

    /// Check that a description with offsets that are too large, which a hostile process can write, is refused.
    #[test]
    fn offsets_that_are_too_large_are_refused() {
        let mut bytes = vec![0; 8 * 256];
        bytes[..8].copy_from_slice(b"xdebugpy");
        bytes[8..16].copy_from_slice(&(3_u64 << 24 | 13 << 16).to_le_bytes());
        assert!(Offsets::of_runtime(13, &bytes).is_some());
        let places = Places::of_version(13).expect("a known version");
        for place in [places.code + 5, places.text + 3] {
            let mut large = bytes.clone();
            large[8 * place..8 * place + 8].copy_from_slice(&0xffff_u64.to_le_bytes());
            assert_eq!(Offsets::of_runtime(13, &large), None);
        }
    }
}
