//! Counts how often a thread executes an instruction, or writes to a word, without changing its code: by a debug register of the CPU.

use std::{fs::File, io, io::Read as _};

use crate::perf;

/// A counter.
pub struct Breakpoint(File);

impl Breakpoint {
    /// Counts from now on how often the instruction at an address is executed.
    pub fn on_instruction(tid: u32, address: u64) -> io::Result<Self> {
        perf::breakpoint(tid, address, false).map(|event| Self(event.into()))
    }

    /// Counts from now on how often the word at an address is written.
    pub fn on_write(tid: u32, address: u64) -> io::Result<Self> {
        perf::breakpoint(tid, address, true).map(|event| Self(event.into()))
    }

    /// Returns the count.
    pub fn hits(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        (&self.0).read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}
