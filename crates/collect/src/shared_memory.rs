//! Memory that is shared with recorded processes.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::{MapFlags, ProtFlags},
};

/// A file in memory for a process to map, mapped here. It begins with a `T`, all zeros at first. Its size is fixed, so that
/// accesses cannot fail.
pub struct SharedMemory<T> {
    file: OwnedFd,
    start: NonNull<T>,
    bytes: usize,
}

// SAFETY: the mapping is owned by this value; it may be used from any thread that owns the value.
unsafe impl<T> Send for SharedMemory<T> {}

impl<T> SharedMemory<T> {
    /// Creates memory that the process reads and writes.
    pub fn new(name: &CStr, bytes: usize) -> io::Result<Self> {
        Self::sealed(name, bytes, SealFlags::empty())
    }

    /// Creates memory that the process can only read: what is read back here is what was written here.
    pub fn read_only(name: &CStr, bytes: usize) -> io::Result<Self> {
        Self::sealed(name, bytes, SealFlags::FUTURE_WRITE)
    }

    fn sealed(name: &CStr, bytes: usize, seals: SealFlags) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        // SAFETY: a new mapping of a whole file, which can no longer shrink.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Self { file, start, bytes };
        // Only now: this mapping stays writable.
        rustix::fs::fcntl_add_seals(&memory.file, seals | SealFlags::SEAL)?;
        Ok(memory)
    }

    /// Returns the file for the process to map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the address of the mapping, which is as long as this value lives.
    pub fn start(&self) -> NonNull<T> {
        self.start
    }
}

impl<T> Drop for SharedMemory<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more. A failure cannot be handled.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
