//! Memory shared with the kernel.

use std::{io, os::fd::AsFd, ptr::NonNull, slice, sync::atomic::AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The memory of a map or of a perf event.
#[derive(Debug)]
pub(crate) struct Shared {
    base: NonNull<u8>,
    length: usize,
}

impl Shared {
    pub(crate) fn map(of: impl AsFd, length: usize) -> io::Result<Self> {
        let length = length.next_multiple_of(4096);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, of, 0)? };
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, length })
    }

    /// Returns a counter that the kernel also changes.
    pub(crate) fn counter(&self, index: usize) -> &AtomicU64 {
        assert!((index + 1) * 8 <= self.length);
        // SAFETY: aligned, within the mapping, which lives as long as `self`; the kernel accesses it by atomic instructions.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(index)) }
    }

    /// Returns bytes that the kernel does not write meanwhile.
    pub(crate) fn read(&self, from: usize, length: usize) -> &[u8] {
        assert!(from + length <= self.length);
        // SAFETY: within the mapping, which lives as long as `self`; only `bytes` returns writable memory, and it
        // borrows all of `self` mutably.
        unsafe { slice::from_raw_parts(self.base.add(from).as_ptr(), length) }
    }

    /// Returns bytes to write that have not been passed to the kernel yet.
    pub(crate) fn bytes(&mut self, from: usize, length: usize) -> &mut [u8] {
        assert!(from + length <= self.length);
        // SAFETY: within the mapping, which lives as long as `self`; the kernel only reads, and only parts passed to it
        // after they were written.
        unsafe { slice::from_raw_parts_mut(self.base.add(from).as_ptr(), length) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, no longer used.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

// SAFETY: the mapping is owned and tied to no thread.
unsafe impl Send for Shared {}
