//! The memory of another process, which keeps running.

use std::{fs::File, io, os::unix::fs::FileExt};

/// `/proc/PID/mem`
pub(super) struct Memory(File);

impl Memory {
    pub fn of(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }

    /// Reads up to `most` bytes: as far as they are mapped.
    pub fn bytes(&self, address: u64, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let read = self.0.read_at(&mut bytes, address).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    /// Reads a word; 0 if it cannot be read, as for a pointer to nothing.
    pub fn word(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, address).map_or(0, |()| u64::from_le_bytes(bytes))
    }
}
