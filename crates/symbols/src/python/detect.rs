//! Finds CPython in an executable or a shared library.
//!
//! The necessary symbols are dynamic ones, which stripped files keep: `_PyRuntime`, the interpreter's loop
//! `_PyEval_EvalFrameDefault`, and from 3.11 on `Py_Version`. The parts of the loop that the compiler moved elsewhere
//! are found through full symbols, if available, and through the loop's own jumps.

use std::{fmt, fs::File, ops::Range, time::Duration};

use elf::{Elf, SHT_DYNSYM, SHT_SYMTAB, Segment, Segments, Symbols};
use sandbox::{Failed, Limits};

use super::{
    Offsets,
    parts::{self, Code},
    versions,
};

const LOOP: &[u8] = b"_PyEval_EvalFrameDefault";
/// Longer names are ignored.
const LONGEST_NAME: usize = 128;
/// Bytes of `_PyRuntime` that may hold its self-description.
const DESCRIPTION: u64 = 1024;
/// The maximum number of bytes of a section to search, because everything else waits meanwhile. CPython's own code has
/// some 8 MiB.
const MOST_BYTES: u64 = 16 << 20;
/// How long the search may take, for the same reason. It takes some milliseconds.
const LIMITS: Limits = Limits { time: Duration::from_secs(10), answer: 1 << 20 };

/// A CPython in a file. Addresses are virtual addresses of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// How its file is mapped.
    pub segments: Segments,
    /// Its minor version, the x of 3.x.
    pub minor: u8,
    /// `_PyRuntime`
    pub runtime: u64,
    /// The interpreter's loop: a native frame in one of these ranges runs Python frames.
    pub interpreter_loop: Vec<Range<u64>>,
    /// `_start` and `main`, if the file is a program: every program has them, so they do not count as the interpreter.
    pub program: Vec<Range<u64>>,
    /// The address of the counter of code objects, if it is known and not in the interpreter's state.
    pub versions: Option<u64>,
    /// The layout of its structures.
    pub offsets: Offsets,
}

/// A CPython whose frames cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// A version or build whose layout is not known.
    Version {
        /// Its minor version, the x of 3.x.
        minor: u8,
        /// It has no global lock.
        free_threaded: bool,
    },
    /// The process that reads its file failed.
    Unread(Failed),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { minor, free_threaded } => {
                let build = if *free_threaded { "the free-threaded " } else { "" };
                write!(f, "{build}CPython 3.{minor} is not supported: only the interpreter's native frames are shown")
            }
            Self::Unread(why) => write!(f, "Python frames are missing: {why}"),
        }
    }
}

impl Interpreter {
    /// Whether a file with this name may contain CPython.
    pub fn may_be_in(path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.starts_with("python") || name.starts_with("libpython")
    }

    /// Searches for CPython in a file named `path`; `None` if there is none.
    pub fn find(file: &File, path: &str) -> Option<Result<Self, Unsupported>> {
        let found = match sandbox::parse(search, &path.to_owned(), &[file], &LIMITS) {
            Ok(found) => found?,
            Err(why) => return Some(Err(Unsupported::Unread(why))),
        };
        let Found { segments, minor, runtime, interpreter_loop, program, versions, description } = found;
        let Some(offsets) = Offsets::of_version(minor).or_else(|| Offsets::of_runtime(minor, &description)) else {
            let free_threaded = Offsets::is_free_threaded(&description);
            return Some(Err(Unsupported::Version { minor, free_threaded }));
        };
        let segments = Segments(segments);
        Some(Ok(Self { segments, minor, runtime, interpreter_loop, program, versions, offsets }))
    }
}

/// What a file says about its interpreter.
struct Found {
    segments: Vec<Segment>,
    minor: u8,
    runtime: u64,
    interpreter_loop: Vec<Range<u64>>,
    program: Vec<Range<u64>>,
    versions: Option<u64>,
    description: Vec<u8>,
}

sandbox::plain! { Found { segments, minor, runtime, interpreter_loop, program, versions, description } }

/// Searches for CPython in a file with this path. Runs without rights.
#[allow(clippy::ptr_arg, reason = "requests are owned values")]
fn search(path: &String, files: &[&File]) -> Option<Found> {
    let file = *files.first()?;
    let elf = Elf::read(file).ok()?;
    let (mut runtime, mut version, mut count) = (None, None, None);
    let (mut interpreter_loop, mut program) = (Vec::new(), Vec::new());
    for table in [SHT_DYNSYM, SHT_SYMTAB].into_iter().filter_map(|kind| Symbols::of(&elf, kind)) {
        each_symbol(file, &table, |name, address, size| match name {
            b"_PyRuntime" => runtime = Some(address),
            b"Py_Version" => version = Some(address),
            // The `co_version` of the next code object in 3.12; only in full symbols.
            b"_Py_next_func_version" => count = Some(address),
            b"_start" | b"main" => program.push(address..address.saturating_add(size)),
            name if is_loop(name) => interpreter_loop.push(address..address.saturating_add(size)),
            _ => {}
        });
    }
    let (runtime, minor) = (runtime?, minor(&elf, file, version, path)?);
    let description = read(&elf, file, runtime, DESCRIPTION).unwrap_or_default();
    if let Some((code, starts, address)) = code(&elf, file) {
        let code = Code { bytes: &code, address, starts };
        let moved: Vec<_> = interpreter_loop.iter().flat_map(|part| code.parts(part)).collect();
        interpreter_loop.extend(moved);
    }
    for ranges in [&mut interpreter_loop, &mut program] {
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges.dedup();
    }
    let versions = match minor {
        12 => count.or_else(|| versions_in_text(&elf, file)),
        _ => None,
    };
    Some(Found { segments: elf.segments.0, minor, runtime, interpreter_loop, program, versions, description })
}

/// Visits the symbols that a file defines: name, address, size.
fn each_symbol(file: &File, table: &Symbols<'_>, mut each: impl FnMut(&[u8], u64, u64)) {
    let Ok(names) = table.strings().read(file, MOST_BYTES, "string table") else { return };
    // A table that is too large or truncated yields no more symbols.
    let _ = table.each(file, MOST_BYTES, |_, symbol| {
        let name = names.get(symbol.name as usize..).unwrap_or_default();
        // All names searched start with one of these; most others do not.
        if symbol.is_defined() && matches!(name.first(), Some(b'_' | b'P' | b'm')) {
            let end = name.iter().take(LONGEST_NAME).position(|b| *b == 0);
            each(&name[..end.unwrap_or(0)], symbol.address, symbol.size);
        }
    });
}

fn minor(elf: &Elf, file: &File, version: Option<u64>, path: &str) -> Option<u8> {
    match version {
        Some(address) => {
            let hex = u64::from_le_bytes(read(elf, file, address, 8)?.try_into().ok()?);
            u8::try_from(hex >> 16 & 0xff).ok().filter(|_| hex >> 24 == 3)
        }
        None => minor_in(path.rsplit('/').next()?.as_bytes()).or_else(|| minor_in_text(elf, file)),
    }
}

/// Whether this is the loop itself or a variant made by the compiler: `.cold`, `.cold.0`, `.constprop.1`,
/// `.lto_priv.0`. From 3.14 on it may be built as one function per instruction.
fn is_loop(name: &[u8]) -> bool {
    let is_part = |rest: &[u8]| rest.is_empty() || rest.starts_with(b".");
    name.strip_prefix(LOOP).is_some_and(is_part) || name.starts_with(b"_TAIL_CALL_")
}

/// Reads bytes at an address, if they are in the file.
fn read(elf: &Elf, file: &File, address: u64, length: u64) -> Option<Vec<u8>> {
    let (offset, left) = elf.segments.offset_of_vaddr(address)?;
    (left >= length).then(|| elf::read(file, offset, length, "bytes").ok())?
}

/// Reads a section's bytes and its address.
fn section(elf: &Elf, file: &File, name: &str) -> Option<(Vec<u8>, u64)> {
    let section = elf.section(name)?;
    Some((section.read(file, MOST_BYTES, "section").ok()?, section.place.address))
}

/// Returns the 12 of `python3.12`, `libpython3.12.so.1.0`.
fn minor_in(text: &[u8]) -> Option<u8> {
    const BEFORE: &[u8] = b"python3.";
    let at = text.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    let digits = text[at..].iter().take(2).take_while(|b| b.is_ascii_digit());
    digits.fold(None, |number, digit| Some(number.unwrap_or(0) * 10 + (digit - b'0')))
}

/// Returns the file's code, the start addresses of its functions and parts, and its address.
fn code(elf: &Elf, file: &File) -> Option<(Vec<u8>, Vec<u64>, u64)> {
    let (text, address) = section(elf, file, ".text")?;
    let (header, header_address) = section(elf, file, ".eh_frame_hdr")?;
    Some((text, parts::starts(&header, header_address)?, address))
}

fn versions_in_text(elf: &Elf, file: &File) -> Option<u64> {
    let (text, address) = section(elf, file, ".text")?;
    versions::find(&text, address)
}

/// The interpreter contains the directory of its modules: `lib/python3.10`.
fn minor_in_text(elf: &Elf, file: &File) -> Option<u8> {
    minor_in(&section(elf, file, ".rodata")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::{
        coverage::not_covered,
        pythons::{Python, installed, installed_of},
    };

    /// Versions are taken from file names.
    #[test]
    fn versions_are_found_in_names() {
        assert_eq!(minor_in(b"python3.9"), Some(9));
        assert_eq!(minor_in(b"libpython3.12.so.1.0"), Some(12));
        assert_eq!(minor_in(b"libpython3.13t.so.1.0"), Some(13));
        assert_eq!(minor_in(b"python3"), None);
        assert_eq!(minor_in(b"python3."), None);
        assert!(Interpreter::may_be_in("/usr/bin/python3.11") && !Interpreter::may_be_in("/usr/lib/python3/x.so"));
    }

    /// Check that every installed Python is found, in its executable or in its library, with any file name.
    #[test]
    fn every_installed_python_is_found() {
        for Python { minor, path: python } in installed() {
            let library = format!("../lib/libpython3.{minor}.so.1.0");
            let library = python.parent().expect("it has a directory").join(library);
            let found = [python.clone(), library]
                .iter()
                .filter_map(|path| Interpreter::find(&File::open(path).ok()?, "/some/python"))
                .next()
                .unwrap_or_else(|| panic!("{}", python.display()))
                .unwrap_or_else(|why| panic!("{}: {why}", python.display()));
            assert_eq!(found.minor, minor, "{}", python.display());
            assert!(found.interpreter_loop.iter().any(|range| range.end - range.start > 10_000), "3.{minor}");
        }
    }

    /// Check that the counter of code objects found in the instructions equals the one from symbols.
    #[test]
    fn the_counter_is_found_in_instructions() {
        let mut checked = 0;
        let pythons = installed_of(12..=12, "the count of code objects");
        for Python { minor, path: python } in &pythons {
            let library = python.parent().expect("it is in a directory").join("../lib/libpython3.12.so.1.0");
            for path in [python.clone(), library] {
                let Ok(file) = File::open(&path) else { continue };
                let Some(expected) = Interpreter::find(&file, "").and_then(|found| found.ok()?.versions) else {
                    continue;
                };
                checked += 1;
                let elf = Elf::read(&file).expect("it is ELF");
                assert_eq!(versions_in_text(&elf, &file), Some(expected), "3.{minor}: {}", path.display());
            }
        }
        if checked == 0 && !pythons.is_empty() {
            not_covered("the count of code objects: no CPython 3.12 with symbols is installed");
        }
    }

    /// Check that the parts found by jumps are those that symbols name, if there are symbols.
    #[test]
    fn parts_found_by_jumps_match_symbols() {
        let mut checked = 0;
        for Python { minor, path: python } in installed() {
            let library =
                python.parent().expect("it has a directory").join(format!("../lib/libpython3.{minor}.so.1.0"));
            for path in [python, library] {
                let Ok(file) = File::open(&path) else { continue };
                let elf = Elf::read(&file).expect("it is ELF");
                let mut named = Vec::new();
                if let Some(table) = Symbols::of(&elf, SHT_SYMTAB) {
                    each_symbol(&file, &table, |name, address, size| {
                        if is_loop(name) {
                            named.push(address..address + size);
                        }
                    });
                }
                let (bytes, starts, address) = code(&elf, &file).expect("it has code");
                let code = Code { bytes: &bytes, address, starts };
                for part in named.iter().flat_map(|part| code.parts(part)) {
                    let inside = |range: &Range<u64>| range.contains(&part.start);
                    assert!(named.iter().any(inside), "{}: {part:x?} is none of {named:x?}", path.display());
                    checked += 1;
                    eprintln!("3.{minor}: a part of {} bytes", part.end - part.start);
                }
            }
        }
        if checked == 0 {
            not_covered("parts of the interpreter loop: no installed CPython has symbols and a loop in parts");
        }
    }

    /// Check that a file without CPython is not recognised.
    #[test]
    fn other_files_are_not_recognised() {
        let own = std::env::current_exe().expect("this test is a file");
        assert_eq!(Interpreter::find(&File::open(own).expect("it opens"), "python3.12"), None);
    }
}
