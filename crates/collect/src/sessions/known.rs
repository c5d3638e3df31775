//! Stacks that a session's threads can recognise by themselves: the writing side of [`wire::known`].
//!
//! The injected library maps the memory for reading. What it does to it, if it is hostile, harms nobody: nothing is read back
//! here, and the file is sealed, so that it cannot shrink under the mapping.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::Ordering,
};

use bpf::Memo;
use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::{MapFlags, ProtFlags},
};
use wire::known::{BYTES, Entry, Header, MOST_WORDS, bucket};

/// The stacks known to one session.
pub struct KnownStacks {
    file: OwnedFd,
    memory: NonNull<Header>,
    /// Where the next entry goes.
    end: usize,
    generation: u32,
}

// SAFETY: the mapping is this value's own; it may be written from whichever thread has it.
unsafe impl Send for KnownStacks {}

impl KnownStacks {
    /// None yet.
    pub fn new() -> io::Result<Self> {
        let file = rustix::fs::memfd_create(c"warpscope-stacks", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a new mapping of a whole file, which can no longer shrink.
        let memory = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, &file, 0)?
        };
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, memory, end: size_of::<Header>(), generation: 0 })
    }

    /// The bytes that entries have taken.
    pub fn bytes(&self) -> usize {
        self.end - size_of::<Header>()
    }

    /// The file to be mapped by the session.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Adds a stack. Returns the bytes that it takes; 0 if there is no room, or it is not one that can be recognised.
    pub fn add(&mut self, memo: &Memo) -> usize {
        let (count, size) = (memo.words.len(), Entry::size(memo.words.len()));
        // A reader takes it for granted that an entry with the most words would fit.
        if count > MOST_WORDS || self.end + Entry::size(MOST_WORDS) > BYTES {
            return 0;
        }
        // SAFETY: the header is at the start of the mapping, which is as long as this value lives.
        let head = unsafe { &self.memory.as_ref().buckets[bucket(memo.sp, memo.bp)] };
        let entry = Entry {
            next: head.load(Ordering::Relaxed),
            generation: self.generation,
            sp: memo.sp,
            bp: memo.bp,
            stack: memo.stack,
            count: count as u32,
            span: memo.span,
        };
        // SAFETY: the entry and its words end before the mapping does, and nobody reads here before the entry is published.
        unsafe {
            let at = self.memory.cast::<u8>().add(self.end);
            at.cast::<Entry>().write(entry);
            let values = at.cast::<Entry>().add(1).cast::<u64>();
            let places = values.add(count).cast::<u16>();
            for (index, (place, value)) in memo.words.iter().enumerate() {
                values.add(index).write(*value);
                places.add(index).write(*place);
            }
        }
        head.store((self.end / 8) as u32, Ordering::Release);
        self.end += size;
        size
    }

    /// Other code may have taken the place of some that was walked: whatever is known so far is void.
    pub fn forget(&mut self) {
        self.generation += 1;
        // SAFETY: as in `add`.
        unsafe { self.memory.as_ref() }.generation.store(self.generation, Ordering::Release);
    }
}

impl Drop for KnownStacks {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more. There is nothing to be done about a failure.
        let _ = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), BYTES) };
    }
}
