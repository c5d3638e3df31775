//! Finds a library that an earlier visit has loaded.
//!
//! A library is loaded once: if the process has mapped a file of the same name and bytes, its entry is called at its
//! address. The name of the memory file contains a random number, so that after an interrupted step the next attempt
//! finds by it what is already there.

use std::{ffi::CStr, fs::File, os::unix::fs::FileExt};

use elf::{Elf, SHT_DYNSYM, STT_FUNC, Symbols};

use crate::process::Mapping;

const MAX_SYMBOLS: u64 = 8 << 20;

/// A library that the process has loaded.
#[derive(Debug)]
pub(crate) struct Present {
    pub file: File,
    /// The address of the function to call.
    pub entry: u64,
}

impl Present {
    /// Finds these very bytes among the mapped files with this name. `open` opens the file of a mapping.
    pub fn find(
        mappings: &[Mapping],
        library: &[u8],
        name: &str,
        entry: &CStr,
        open: impl Fn(&Mapping) -> Option<File>,
    ) -> Option<Self> {
        let named = |mapping: &&Mapping| mapping.executable && has_name(mapping.file_name(), name);
        mappings.iter().filter(named).find_map(|mapping| {
            let file = open(mapping).filter(|file| begins_with(file, library))?;
            let entry = address(mapping, &file, entry)?;
            Some(Present { file, entry })
        })
    }
}

/// Whether a mapped file has this name: as a file, or as a memory file, whose name has a number.
fn has_name(mapped: &str, name: &str) -> bool {
    let mapped = mapped.trim_end_matches(" (deleted)");
    let in_memory = mapped.strip_prefix("memfd:").and_then(|rest| rest.strip_prefix(name));
    mapped == name || in_memory.is_some_and(|rest| rest.starts_with('.'))
}

/// Whether a file begins with these bytes. A memory file also has the code of the first visit.
fn begins_with(file: &File, bytes: &[u8]) -> bool {
    let mut part = vec![0; 1 << 16];
    let mut chunks = (0_u64..).zip(bytes.chunks(part.len()));
    chunks.all(|(index, chunk)| {
        let part = &mut part[..chunk.len()];
        file.read_exact_at(part, index << 16).is_ok() && part == chunk
    })
}

/// Returns the address of a function.
fn address(mapping: &Mapping, file: &File, function: &CStr) -> Option<u64> {
    let elf = Elf::read(file).ok()?;
    let bias = elf.segments.bias(mapping.start, mapping.offset)?;
    let symbols = Symbols::of(&elf, SHT_DYNSYM)?;
    let strings = symbols.strings().read(file, MAX_SYMBOLS, "symbol names").ok()?;
    let mut found = None;
    symbols
        .each(file, MAX_SYMBOLS, |_, symbol| {
            let named = Symbols::name_in(&strings, &symbol) == Some(function.to_bytes());
            if named && symbol.kind == STT_FUNC && symbol.is_defined() {
                found = Some(bias.wrapping_add(symbol.address)).filter(|address| mapping.contains(*address));
            }
        })
        .ok()?;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which mapped files are compared.
    #[test]
    fn names_of_files_and_memory_files() {
        for name in ["lib.so", "lib.so (deleted)", "memfd:lib.so.0123 (deleted)"] {
            assert!(has_name(name, "lib.so"), "{name}");
        }
        for name in ["", "lib.so.1", "memfd:lib.so", "memfd:other.so.0123", "xlib.so"] {
            assert!(!has_name(name, "lib.so"), "{name}");
        }
    }
}
