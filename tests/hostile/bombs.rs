//! Libraries for attacks by files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::programs;

/// A library that is changed byte by byte.
#[derive(Clone)]
pub struct Library(Vec<u8>);

impl Library {
    /// A library with a function `through` that calls what it is given, with symbols and lines, and some 2,000 functions
    /// besides.
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

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// All bytes `from` become `to`.
    pub fn rename(mut self, from: &[u8], to: &[u8]) -> Self {
        assert_eq!(from.len(), to.len());
        let mut at = 0;
        while let Some(found) = self.0[at..].windows(from.len()).position(|window| window == from) {
            self.put(at + found, to);
            at += found + from.len();
        }
        self
    }

    /// Writes it.
    pub fn write(&self, path: &Path) -> String {
        fs::write(path, &self.0).expect("the directory is writable");
        path.to_str().expect("the path is text").to_owned()
    }
}

/// A library with so many exported functions, named `PREFIX` and a number, and nothing else.
pub fn symbols(directory: &Path, prefix: &str, count: usize) -> PathBuf {
    let (source, library) = (directory.join("symbols.s"), directory.join("symbols.so"));
    let function = |i| {
        format!(".globl {prefix}{i:05}\n.type {prefix}{i:05},@function\n{prefix}{i:05}: push %rbp\npop %rbp\nret\n")
    };
    fs::write(&source, (0..count).map(function).collect::<String>()).expect("the directory is writable");
    programs::run(Command::new("cc").args(["-shared", "-nostdlib", "-o"]).args([&library, &source]));
    library
}
