//! Stacks that a session's threads can recognise by themselves: the writing side of [`wire::known`].
//!
//! The injected library maps the memory for reading. A hostile one can do no harm: the file is sealed, so that nobody else can
//! write to it, and it cannot shrink under the mapping.

mod tree;

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use bpf::Memo;
use wire::known::{BYTES, Header, PYTHON_PLACES, PYTHON_ROWS, Python, python_row};

use crate::shared_memory::SharedMemory;
use tree::Tree;

/// The stacks known to one session.
pub struct KnownStacks {
    memory: SharedMemory<Header>,
    tree: Tree,
    generation: u32,
    /// The place in each row of Python stacks that is used next.
    rows: Box<[u8; PYTHON_ROWS]>,
}

impl KnownStacks {
    /// Creates an empty set for a process image, with the layout of its Python interpreter, if it has one.
    pub fn new(image: u32, python: Option<Python>) -> io::Result<Self> {
        let memory = SharedMemory::<Header>::read_only(c"warpscope-stacks", BYTES)?;
        // SAFETY: the mapping begins with a header, which is not shared yet; all zeros is a value of it.
        let header = unsafe { memory.start().as_mut() };
        header.image = image;
        if let Some(python) = python {
            (header.has_python, header.python) = (1, python);
        }
        Ok(Self { memory, tree: Tree::new(), generation: 0, rows: Box::new([0; PYTHON_ROWS]) })
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

    /// Returns the bytes used by native stacks.
    pub fn bytes(&self) -> usize {
        self.tree.bytes()
    }

    /// Returns the file for the session to map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// Adds a stack, which may have no Python frames, if there is room.
    pub fn add(&mut self, memo: &Memo, without_python: bool) {
        // SAFETY: the mapping has this many words. Threads of the process read them as atomics, and nothing else writes.
        let words = unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr().cast::<AtomicU64>(), BYTES / 8) };
        self.tree.add(words, memo, without_python);
    }

    /// Invalidates all Python stacks.
    pub fn forget_python(&mut self) {
        for stack in self.header().pythons.as_flattened() {
            stack.hash.store(0, Ordering::Release);
        }
    }

    /// Invalidates all native stacks, because other code may have replaced code that was walked, and uses their memory again.
    pub fn forget(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        let header = self.header();
        // A thread that sees the new generation sees the empty tree; one that sees what is written later sees the new
        // generation.
        header.root.store(0, Ordering::Relaxed);
        header.generation.store(self.generation, Ordering::Release);
        fence(Ordering::Release);
        self.tree = Tree::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::known::tree;

    const SP: u64 = 0x7fff_0000;

    /// A stack whose words are one of four values each, as the branches of the calls on it.
    fn stack(number: u64) -> Vec<u64> {
        let mut random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut word = || {
            random = random.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            0x40_0000 + (random >> 62)
        };
        (0..64).map(|_| word()).collect()
    }

    /// A walk: where it reads next depends on what it has read.
    fn walk(stack: &[u64], id: u64) -> Memo {
        let mut words = Vec::new();
        let mut place = 3;
        while place < stack.len() && words.len() < 12 {
            words.push((place as u16, stack[place]));
            place += 1 + (stack[place] & 3) as usize;
        }
        Memo { image: 1, session: 2, stack: id, sp: SP, bp: 7, words }
    }

    /// A stack's words, and what happens when one is read.
    #[derive(Clone, Copy)]
    struct Read<'a>(&'a [u64], &'a dyn Fn());

    impl tree::Words for Read<'_> {
        fn count(self) -> u64 {
            self.0.len() as u64
        }

        fn at(self, place: u64) -> u64 {
            self.1();
            self.0[(place as usize).min(self.0.len() - 1)]
        }
    }

    fn find(known: &KnownStacks, stack: &[u64]) -> Option<u64> {
        find_from(known, stack, 0).map(|(_, id)| id)
    }

    /// Finds a stack, and its place, by a thread that expects it at a place.
    fn find_from(known: &KnownStacks, stack: &[u64], expected: u32) -> Option<(u32, u64)> {
        // SAFETY: as in `add`.
        let words = unsafe { std::slice::from_raw_parts(known.memory.start().as_ptr().cast(), BYTES / 8) };
        tree::find(known.header(), words, (SP, 7), Read(stack, &|| ()), |_| expected)
            .map(|(at, entry)| (at, entry.stack))
    }

    /// Check that every stack of thousands that begin alike is found, and that no other one is taken for it.
    #[test]
    fn stacks_are_found_exactly() {
        let mut known = KnownStacks::new(7, None).unwrap();
        let stacks: Vec<_> = (0..3000).map(stack).collect();
        let mut ids = std::collections::HashMap::new();
        for (number, stack) in stacks.iter().enumerate().filter(|(number, _)| number % 3 != 0) {
            assert_eq!(find(&known, stack), ids.get(&walk(stack, 0).words).copied());
            let id = *ids.entry(walk(stack, 0).words).or_insert(number as u64 + 1);
            known.add(&walk(stack, id), false);
            assert_eq!(find(&known, stack), Some(id));
        }
        assert!(ids.len() > 1500 && known.bytes() < BYTES, "{} in {} bytes", ids.len(), known.bytes());
        let mut last = 0;
        for stack in &stacks {
            assert_eq!(find(&known, stack), ids.get(&walk(stack, 0).words).copied());
            // Whether the right one is expected, or another one.
            let found = find_from(&known, stack, last);
            assert_eq!(found.map(|(_, id)| id), find(&known, stack));
            if let Some((place, id)) = found {
                assert_eq!(find_from(&known, stack, place), Some((place, id)));
                last = place;
            }
        }
        let before = known.bytes();
        known.add(&walk(&stacks[1], ids[&walk(&stacks[1], 0).words]), false);
        assert_eq!(known.bytes(), before, "it was there");
        let other = Memo { bp: 8, ..walk(&stacks[1], 9) };
        known.add(&other, false);
        assert_ne!(find(&known, &stacks[1]), Some(9), "other registers");
        known.forget();
        assert!(stacks.iter().all(|stack| find(&known, stack).is_none()));
    }

    /// Check that a walk that reads other words after the same ones, because unwind rules have changed, replaces the old one, also for
    /// threads that remember where that was.
    #[test]
    fn the_newest_walk_is_right() {
        let mut known = KnownStacks::new(7, None).unwrap();
        let stack: Vec<u64> = (0..64).collect();
        let walk = |places: &[u16], id| {
            let words = places.iter().map(|place| (*place, u64::from(*place))).collect();
            Memo { image: 1, session: 2, stack: id, sp: SP, bp: 7, words }
        };
        let walks: [&[u16]; 5] = [&[1, 2, 3], &[1, 2, 4], &[1, 2], &[], &[1, 2, 3]];
        let mut remembered = Vec::new();
        for (places, id) in walks.into_iter().zip(1..) {
            known.add(&walk(places, id), false);
            let (place, found) = find_from(&known, &stack, 0).expect("it was added");
            assert_eq!(found, id);
            remembered.push(place);
            for before in &remembered {
                assert_eq!(find_from(&known, &stack, *before), Some((place, id)));
            }
        }
    }

    /// Check that full memory refuses stacks, keeps those that it has, and is empty once they are forgotten.
    #[test]
    fn memory_is_used_again() {
        let mut known = KnownStacks::new(7, None).unwrap();
        for round in 0..3 {
            let stacks = (0..).map(|number| stack(round << 32 | number));
            let mut found = 0;
            for (number, stack) in stacks.enumerate() {
                let deep =
                    Memo { words: (0..1000).map(|at| (at, stack[usize::from(at) % 64])).collect(), ..walk(&stack, 1) };
                let before = known.bytes();
                known.add(&Memo { stack: number as u64 + 1, ..deep }, false);
                let long: Vec<u64> = (0..1000).map(|at| stack[at % 64]).collect();
                if find(&known, &long).is_none() {
                    assert_eq!(known.bytes(), before);
                    break;
                }
                found += 1;
            }
            assert!(found > 300 && known.bytes() > BYTES * 9 / 10, "{found} in {} bytes", known.bytes());
            known.forget();
            assert_eq!(known.bytes(), 0);
        }
    }

    /// Check that nothing is found if all stacks are forgotten during a search, whatever has been read by then, and their memory is
    /// used again for the same stacks at other places.
    #[test]
    fn nothing_is_found_while_memory_is_used_again() {
        let mut known = KnownStacks::new(7, None).unwrap();
        let header: *const Header = known.memory.start().as_ptr();
        // SAFETY: the mapping is as long as the test, and what changes is atomic.
        let (header, words) = unsafe { (&*header, std::slice::from_raw_parts(header.cast(), BYTES / 8)) };
        let stacks: Vec<_> = (0..50).map(stack).collect();
        let fill = |known: &mut KnownStacks, order: usize| {
            for at in 0..stacks.len() {
                let number = at * order % stacks.len();
                known.add(&walk(&stacks[number], number as u64), false);
            }
        };
        let mut interrupted = 0;
        for (number, stack) in stacks.iter().enumerate() {
            for read in 0..20 {
                known.forget();
                fill(&mut known, 7);
                let (reads, known) = (std::cell::Cell::new(0), std::cell::RefCell::new(&mut known));
                let interrupt = || {
                    if reads.replace(reads.get() + 1) == read {
                        known.borrow_mut().forget();
                        fill(&mut known.borrow_mut(), 3);
                    }
                };
                let found =
                    tree::find(header, words, (SP, 7), Read(stack, &interrupt), |_| 0).map(|(_, entry)| entry.stack);
                let happened = reads.get() > read;
                assert_eq!(found, (!happened).then_some(number as u64), "after {read} of {} reads", reads.get());
                interrupted += u32::from(happened);
            }
        }
        assert!(interrupted > 500, "{interrupted}");
    }

    /// Check that threads that search while all stacks are forgotten and their memory is used again find the right stack of the right
    /// generation, or none.
    #[test]
    fn stacks_are_found_while_memory_is_used_again() {
        const ROUNDS: u64 = 400;
        let mut known = KnownStacks::new(7, None).unwrap();
        let stacks: Vec<_> = (0..200).map(stack).collect();
        let memory = known.memory.start().as_ptr() as usize;
        let found = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let header: *const Header = std::ptr::with_exposed_provenance(memory);
                    // SAFETY: the mapping is as long as the scope, and what changes is atomic.
                    let (header, words) = unsafe { (&*header, std::slice::from_raw_parts(header.cast(), BYTES / 8)) };
                    loop {
                        for (number, stack) in stacks.iter().enumerate() {
                            let before = u64::from(header.generation.load(Ordering::SeqCst));
                            let entry =
                                tree::find(header, words, (SP, 7), Read(stack, &|| ()), |_| 0).map(|(_, entry)| entry);
                            let after = u64::from(header.generation.load(Ordering::SeqCst));
                            let Some(entry) = entry else { continue };
                            assert_eq!(entry.stack & 0xffff, number as u64);
                            assert!((before..=after).contains(&(entry.stack >> 16)), "{before} {entry:?} {after}");
                            found.fetch_add(1, Ordering::Relaxed);
                        }
                        if u64::from(header.generation.load(Ordering::SeqCst)) == ROUNDS {
                            break;
                        }
                    }
                });
            }
            for round in 0..ROUNDS {
                // Another order and other lengths: entries are where branches were, and within others.
                for at in 0..stacks.len() {
                    let number = (at * 7 + round as usize * 31) % stacks.len();
                    known.add(&walk(&stacks[number], round << 16 | number as u64), false);
                }
                known.forget();
            }
        });
        assert!(found.load(Ordering::Relaxed) > 0);
    }

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
