//! Stacks that a session's threads can recognise by themselves: the writing side of [`wire::known`].
//!
//! The injected library maps the memory for reading. A hostile one can do no harm: nothing is read back here, and the
//! file is sealed, so that it cannot shrink under the mapping.

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
use wire::known::{BYTES, Entry, Header, MOST_WORDS, Python, bucket};

/// The stacks known to one session.
pub struct KnownStacks {
    file: OwnedFd,
    memory: NonNull<Header>,
    /// Where the next entry goes.
    end: usize,
    generation: u32,
}

// SAFETY: the mapping is owned by this value; it may be written from any thread that owns the value.
unsafe impl Send for KnownStacks {}

impl KnownStacks {
    /// Creates an empty set for a process, with the layout of its Python interpreter, if it has one.
    pub fn new(python: Option<Python>) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(c"warpscope-stacks", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a new mapping of a whole file, which can no longer shrink.
        let memory = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, &file, 0)?
        };
        let mut memory = NonNull::<Header>::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        if let Some(python) = python {
            // SAFETY: the mapping begins with a header, which is not shared yet; all zeros is a value of it.
            let header = unsafe { memory.as_mut() };
            (header.has_python, header.python) = (1, python);
        }
        Ok(Self { file, memory, end: size_of::<Header>(), generation: 0 })
    }

    /// Returns the bytes used by entries.
    pub fn bytes(&self) -> usize {
        self.end - size_of::<Header>()
    }

    /// Returns the file for the session to map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Adds a stack. Returns the bytes used; 0 if there is no room or the stack cannot be recognised.
    pub fn add(&mut self, memo: &Memo) -> usize {
        let (count, size) = (memo.words.len(), Entry::size(memo.words.len()));
        // Readers assume that an entry with the most words would fit.
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
        // SAFETY: the entry and its words end before the mapping does, and nothing reads here before the entry is
        // published.
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

    /// Invalidates all known stacks: other code may have replaced code that was walked.
    pub fn forget(&mut self) {
        self.generation += 1;
        // SAFETY: as in `add`.
        unsafe { self.memory.as_ref() }.generation.store(self.generation, Ordering::Release);
    }
}

impl Drop for KnownStacks {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more. A failure cannot be handled.
        let _ = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), BYTES) };
    }
}
