//! The source of a file's bytes.

use std::{
    fs::File,
    io::{Seek, SeekFrom},
    os::unix::fs::FileExt,
};

use object::pod::{Pod, from_bytes};

use crate::Error;

/// Random access to bytes: an open file, or memory.
pub trait Bytes {
    /// Reads into `buffer` from `offset` on; returns how many bytes were read, 0 at the end or on an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize;

    /// Returns the current number of bytes.
    fn length(&self) -> u64;
}

impl Bytes for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        FileExt::read_at(self, buffer, offset).unwrap_or(0)
    }

    fn length(&self) -> u64 {
        // A process without rights may seek, and not use `stat`. The position is not used: all reads have an offset.
        { self }.seek(SeekFrom::End(0)).unwrap_or(0)
    }
}

impl Bytes for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        length
    }

    fn length(&self) -> u64 {
        self.len() as u64
    }
}

/// Reads exactly `size` bytes; `what` names them in errors. The caller has checked `size` against a limit.
pub fn read<B: Bytes + ?Sized>(bytes: &B, offset: u64, size: u64, what: &'static str) -> Result<Vec<u8>, Error> {
    // Checked before anything is allocated: a header may claim any size.
    if offset.checked_add(size).is_none_or(|end| end > bytes.length()) {
        return Err(Error::Truncated(what));
    }
    let mut buffer = vec![0; usize::try_from(size).map_err(|_| Error::Truncated(what))?];
    if fill(bytes, &mut buffer, offset) < buffer.len() {
        return Err(Error::Truncated(what));
    }
    Ok(buffer)
}

/// Reads until the buffer is full or the file ends; returns how many bytes were read.
pub(crate) fn fill<B: Bytes + ?Sized>(bytes: &B, buffer: &mut [u8], offset: u64) -> usize {
    let mut filled = 0;
    while filled < buffer.len() {
        match bytes.read_at(&mut buffer[filled..], offset + filled as u64) {
            0 => break,
            read => filled += read,
        }
    }
    filled
}

/// Returns one structure from bytes already read.
pub(crate) fn one<T: Pod>(bytes: &[u8]) -> Option<&T> {
    from_bytes::<T>(bytes).ok().map(|(value, _)| value)
}
