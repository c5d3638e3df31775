//! Stacks that a session's threads can recognise by themselves: the writing side of [`wire::known`].
//!
//! The injected library maps the memory for reading. A hostile one can do no harm: nothing is read back here, and the
//! file is sealed, so that it cannot shrink under the mapping.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{Ordering, fence},
};

use bpf::Memo;
use wire::known::{BYTES, Entry, Header, MOST_WORDS, PYTHON_PLACES, PYTHON_ROWS, Python, bucket, python_row};

use crate::shared_memory::SharedMemory;

/// The stacks known to one session.
pub struct KnownStacks {
    memory: SharedMemory<Header>,
    /// Where the next entry goes.
    end: usize,
    generation: u32,
    /// The place in each row of Python stacks that is used next.
    rows: Box<[u8; PYTHON_ROWS]>,
}

impl KnownStacks {
    /// Creates an empty set for a process image, with the layout of its Python interpreter, if it has one.
    pub fn new(image: u32, python: Option<Python>) -> io::Result<Self> {
        let memory = SharedMemory::<Header>::new(c"warpscope-stacks", BYTES)?;
        // SAFETY: the mapping begins with a header, which is not shared yet; all zeros is a value of it.
        let header = unsafe { memory.start().as_mut() };
        header.image = image;
        if let Some(python) = python {
            (header.has_python, header.python) = (1, python);
        }
        Ok(Self { memory, end: size_of::<Header>(), generation: 0, rows: Box::new([0; PYTHON_ROWS]) })
    }

    fn header(&self) -> &Header {
        // SAFETY: the header is at the start of the mapping, which is as long as this value lives.
        unsafe { self.memory.start().as_ref() }
    }

    /// Whether the process was found to run Python when this was created.
    pub fn has_python(&self) -> bool {
        self.header().has_python != 0
    }

    /// Sets whether launches whose stacks are known need not go through the probe.
    pub fn set_without_probe(&self, on: bool) {
        self.header().without_probe.store(on.into(), Ordering::Release);
    }

    /// Adds a Python stack, in the place of the oldest one of its row.
    pub fn add_python(&mut self, hash: u64, id: u64) {
        let row = python_row(hash);
        let next = self.rows[row];
        let stacks = &self.header().pythons[row];
        if hash == 0 || id == 0 || stacks.iter().any(|stack| stack.hash.load(Ordering::Relaxed) == hash) {
            return;
        }
        let stack = &stacks[usize::from(next)];
        // A thread that reads meanwhile sees that the hash has changed.
        stack.hash.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        stack.id.store(id, Ordering::Relaxed);
        stack.hash.store(hash, Ordering::Release);
        self.rows[row] = (next + 1) % PYTHON_PLACES as u8;
    }

    /// Returns the bytes used by entries.
    pub fn bytes(&self) -> usize {
        self.end - size_of::<Header>()
    }

    /// Returns the file for the session to map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// Adds a stack, which may have no Python frames. Returns the bytes used; 0 if there is no room or the stack cannot be
    /// recognised.
    pub fn add(&mut self, memo: &Memo, without_python: bool) -> usize {
        let (count, size) = (memo.words.len(), Entry::size(memo.words.len()));
        // Readers assume that an entry with the most words would fit.
        if count > MOST_WORDS || self.end + Entry::size(MOST_WORDS) > BYTES {
            return 0;
        }
        let head = &self.header().buckets[bucket(memo.sp, memo.bp)];
        let entry = Entry {
            next: head.load(Ordering::Relaxed),
            generation: self.generation,
            sp: memo.sp,
            bp: memo.bp,
            stack: memo.stack,
            count: count as u16,
            without_python: without_python.into(),
            span: memo.span,
        };
        // SAFETY: the entry and its words end before the mapping does, and nothing reads here before the entry is
        // published.
        unsafe {
            let at = self.memory.start().cast::<u8>().add(self.end);
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

    /// Invalidates all Python stacks.
    pub fn forget_python(&mut self) {
        for stack in self.header().pythons.as_flattened() {
            stack.hash.store(0, Ordering::Release);
        }
    }

    /// Invalidates all known stacks: other code may have replaced code that was walked.
    pub fn forget(&mut self) {
        self.generation += 1;
        self.header().generation.store(self.generation, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(known: &KnownStacks, row: usize) -> Vec<(u64, u64)> {
        let stacks = known.header().pythons[row].iter();
        stacks.map(|stack| (stack.hash.load(Ordering::Relaxed), stack.id.load(Ordering::Relaxed))).collect()
    }

    /// Check that a row keeps its newest Python stacks, each once, and none after they were invalidated.
    #[test]
    fn rows_keep_their_newest_python_stacks() {
        let mut known = KnownStacks::new(7, None).unwrap();
        let hash = |n: u64| 3 << 32 | n;
        for n in [1, 2, 2, 3, 4, 5] {
            known.add_python(hash(n), 10 * n);
        }
        known.add_python(0, 1);
        known.add_python(hash(9), 0);
        let expected = [5, 2, 3, 4].map(|n| (hash(n), 10 * n));
        assert_eq!((python_row(hash(1)), ids(&known, 3)), (3, expected.into()));
        known.forget_python();
        assert!(ids(&known, 3).iter().all(|(hash, _)| *hash == 0));
    }
}
