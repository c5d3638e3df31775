//! Shared by the tests: compiling C and assembly, handmade ELF files, a seeded random number generator.

#![allow(dead_code, unused_imports, reason = "each test uses its part")]

mod made;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use made::{CODE, CODE_SIZE, EH_FRAME, cie, elf, fde};
use object::{Object as _, ObjectSymbol as _};

/// Runs gcc in the crate's directory and returns its output file.
pub fn gcc(folder: &Path, output: &str, arguments: &[&str]) -> PathBuf {
    let path = folder.join(output);
    let status = Command::new("gcc")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["-Wall", "-Wextra", "-Werror", "-Isrc", "-o"])
        .arg(&path)
        .args(arguments)
        .status()
        .expect("gcc is needed to make test programs");
    assert!(status.success(), "gcc {arguments:?}");
    path
}

/// Assembles a text into a shared library and returns its bytes.
pub fn assemble(text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("test.s");
    std::fs::write(&source, format!("{text}\n.section .note.GNU-stack,\"\",@progbits\n")).unwrap();
    let library = gcc(folder.path(), "test.so", &["-shared", "-nostdlib", source.to_str().unwrap()]);
    std::fs::read(library).unwrap()
}

/// Returns the virtual address of an exported symbol.
pub fn address_of(elf: &[u8], name: &str) -> u64 {
    let file = object::File::parse(elf).unwrap();
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
    symbol.unwrap_or_else(|| panic!("no symbol {name}")).address()
}

/// xorshift64*: the same numbers in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
