//! Memory that warpscope shares with this process, at an address that stays mapped: threads may still be using that of an earlier
//! session.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The place of one kind of memory, which begins with a `T`.
pub struct Shared<T> {
    /// The memory of this session, or null.
    memory: AtomicPtr<T>,
    /// Where it is mapped, if it ever was: there is private memory when no session has it.
    place: AtomicPtr<T>,
    bytes: usize,
    protection: i32,
}

impl<T> Shared<T> {
    pub const fn new(bytes: usize, protection: i32) -> Self {
        let (memory, place) = (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()));
        Self { memory, place, bytes, protection }
    }

    /// Returns the memory of this session, or null. It can be read at any time from then on, also when the session has ended.
    #[inline]
    pub fn get(&self) -> *mut T {
        self.memory.load(Ordering::Acquire)
    }

    /// Maps what is behind a descriptor, which the caller keeps. It must have the right size, and not shrink. If that fails, the session
    /// goes without it.
    pub fn open(&self, descriptor: i32, flags: i32) {
        let place = self.place.load(Ordering::Acquire);
        let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
        // SAFETY: a new mapping, or one in the place of ours of this size.
        let mapped = unsafe {
            libc::mmap(place.cast(), self.bytes, self.protection, libc::MAP_SHARED | flags | fixed, descriptor, 0)
        };
        if mapped == libc::MAP_FAILED {
            return self.close();
        }
        self.place.store(mapped.cast(), Ordering::Release);
        self.memory.store(mapped.cast(), Ordering::Release);
    }

    /// Releases the memory. Threads may still be using it: private memory takes its place. The kernel may have unmapped the place
    /// before a mapping failed. If there is no memory at all, it is not used again.
    pub fn close(&self) {
        self.memory.store(ptr::null_mut(), Ordering::SeqCst);
        let place = self.place.load(Ordering::Acquire);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        if place.is_null() {
            return;
        }
        // SAFETY: replaces a mapping of ours of this size.
        let mapped = unsafe { libc::mmap(place.cast(), self.bytes, self.protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            self.place.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::FileExt;

    const BYTES: usize = 8192;

    fn file(value: u8) -> File {
        // SAFETY: creates a descriptor, which the file owns.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"shared".as_ptr(), 0)) };
        file.write_all_at(&[value; BYTES], 0).unwrap();
        file
    }

    /// Check that a session whose memory cannot be mapped has none, instead of the private memory that took the place of the last
    /// session's, where what it writes would be lost; and that this place stays readable and is used again.
    #[test]
    fn memory_that_cannot_be_mapped_is_not_used() {
        let shared = Shared::<u8>::new(BYTES, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the place stays mapped.
        let read = |at: *mut u8| unsafe { at.add(BYTES - 1).read_volatile() };
        shared.open(-1, 0);
        assert!(shared.get().is_null());
        shared.open(file(1).as_raw_fd(), 0);
        let first = shared.get();
        assert_eq!(read(first), 1);
        // At once, and after the end of a session.
        for ended in [false, true] {
            if ended {
                shared.close();
                assert!(shared.get().is_null());
            }
            shared.open(-1, 0);
            assert!(shared.get().is_null());
            assert_eq!(read(first), 0);
            shared.open(file(2).as_raw_fd(), 0);
            assert_eq!((shared.get(), read(first)), (first, 2));
        }
    }
}
