//! Libraries for attacks with files. The loader uses only program headers; readers of sections see huge ones.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use flate2::{Compression, write::ZlibEncoder};

use crate::support::programs;

/// 3 GiB, none of it on the disk.
pub const HUGE: u64 = 3 << 30;

// Offsets in the ELF header; sizes of a section header and of a program header.
const PHOFF: usize = 0x20;
const SHOFF: usize = 0x28;
const PHNUM: usize = 0x38;
const SHNUM: usize = 0x3c;
const SHSTRNDX: usize = 0x3e;
const SECTION: usize = 64;
const PROGRAM: usize = 56;
const PT_NOTE: u64 = 4;
const SHF_COMPRESSED: u64 = 0x800;

/// A library whose bytes can be changed.
#[derive(Clone)]
pub struct Library(Vec<u8>);

impl Library {
    /// Builds a library with a function `through` that calls its argument, with symbols and lines, and 2,000 other functions.
    pub fn build(directory: &Path) -> PathBuf {
        let (source, library) = (directory.join("through.c"), directory.join("through.so"));
        let mut text: String = (0..2000).map(|i| format!("int filler_{i}(int n) {{ return n * {i}; }}\n")).collect();
        text += "void through(void (*call)(void)) { call(); __asm__ volatile(\"\"); }\n";
        fs::write(&source, text).expect("the directory is writable");
        let flags = ["-shared", "-fPIC", "-O1", "-g", "-Wl,--build-id=none", "-o"];
        programs::run(Command::new("cc").args(flags).args([&library, &source]));
        library
    }

    pub fn read(path: &Path) -> Self {
        Self(fs::read(path).expect("it was built"))
    }

    fn number(&self, at: usize, length: usize) -> u64 {
        self.0[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the offset of a section's header.
    fn section(&self, name: &str) -> usize {
        let header = |index: usize| self.number(SHOFF, 8) as usize + SECTION * index;
        let names = self.number(header(self.number(SHSTRNDX, 2) as usize) + 24, 8) as usize;
        let wanted = format!("{name}\0");
        let named = |at: &usize| self.0[names + self.number(*at, 4) as usize..].starts_with(wanted.as_bytes());
        (0..self.number(SHNUM, 2) as usize).map(header).find(named).unwrap_or_else(|| panic!("it has no {name}"))
    }

    /// Moves a section to the end of the file and gives it this size.
    pub fn enlarge(mut self, name: &str, size: u64) -> Self {
        let (header, end) = (self.section(name), self.0.len() as u64);
        self.put(header + 24, &end.to_le_bytes());
        self.put(header + 32, &size.to_le_bytes());
        self
    }

    /// Gives the notes this size.
    pub fn enlarge_notes(mut self, size: u64) -> Self {
        let start = self.number(PHOFF, 8) as usize;
        let headers = (0..self.number(PHNUM, 2) as usize).map(|index| start + PROGRAM * index);
        for header in headers.filter(|header| self.number(*header, 4) == PT_NOTE).collect::<Vec<_>>() {
            self.put(header + 32, &size.to_le_bytes());
        }
        self
    }

    /// Compresses a section. Its header claims `claimed` bytes; it decompresses to `zeros` bytes.
    pub fn compress(mut self, name: &str, claimed: u64, zeros: u64) -> Self {
        let header = self.section(name);
        let mut compressed = ZlibEncoder::new(Vec::new(), Compression::fast());
        for _ in 0..zeros >> 20 {
            compressed.write_all(&[0; 1 << 20]).expect("memory");
        }
        let compressed = compressed.finish().expect("memory");
        let head = [1_u64.to_le_bytes(), claimed.to_le_bytes(), 1_u64.to_le_bytes()].concat();
        let flags = self.number(header + 8, 8) | SHF_COMPRESSED;
        let end = self.0.len() as u64;
        self.put(header + 8, &flags.to_le_bytes());
        self.put(header + 24, &end.to_le_bytes());
        self.put(header + 32, &((head.len() + compressed.len()) as u64).to_le_bytes());
        self.0.extend(head);
        self.0.extend(compressed);
        self
    }

    /// Writes the library with a hole of this many bytes at its end.
    pub fn write_with_hole(&self, path: &Path, hole: u64) -> String {
        let written = self.write(path);
        let file = File::options().write(true).open(path).expect("it was written");
        file.write_all_at(&[0], self.0.len() as u64 + hole - 1).expect("a sparse file");
        written
    }

    /// Replaces all occurrences of `from` by `to`.
    pub fn rename(mut self, from: &[u8], to: &[u8]) -> Self {
        assert_eq!(from.len(), to.len());
        let mut at = 0;
        while let Some(found) = self.0[at..].windows(from.len()).position(|window| window == from) {
            self.put(at + found, to);
            at += found + from.len();
        }
        self
    }

    /// Writes the library.
    pub fn write(&self, path: &Path) -> String {
        fs::write(path, &self.0).expect("the directory is writable");
        path.to_str().expect("the path is text").to_owned()
    }
}

/// Builds a library with `count` exported functions, named `prefix` and a number, and nothing else.
pub fn symbols(directory: &Path, prefix: &str, count: usize) -> PathBuf {
    let (source, library) = (directory.join("symbols.s"), directory.join("symbols.so"));
    let function = |i| {
        format!(".globl {prefix}{i:05}\n.type {prefix}{i:05},@function\n{prefix}{i:05}: push %rbp\npop %rbp\nret\n")
    };
    fs::write(&source, (0..count).map(function).collect::<String>()).expect("the directory is writable");
    programs::run(Command::new("cc").args(["-shared", "-nostdlib", "-o"]).args([&library, &source]));
    library
}
