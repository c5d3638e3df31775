//! The tree of known stacks: the side of [`wire::known::tree`] that adds to it.
//!
//! Threads of the process read the tree meanwhile. So an entry or a branch is complete before a slot refers to it, and what a slot
//! refers to is replaced, never changed; only empty slots are filled. What was replaced keeps its memory until all stacks
//! are forgotten, but is invalid.

use std::{
    mem::offset_of,
    sync::atomic::{AtomicU64, Ordering},
};

use bpf::Memo;
use wire::known::{
    Header, MOST_WORDS,
    tree::{Branch, Child, Entry, Value, child, slot},
};

/// The word that refers to the root.
const ROOT: usize = offset_of!(Header, root) / 8;
/// The first word after the header.
const FIRST: usize = size_of::<Header>() / 8;
/// Slots of a new root and of a new branch, as logarithms.
const ROOT_BITS: u16 = 6;
const BRANCH_BITS: u16 = 2;

/// How much of the memory is used.
pub struct Tree {
    end: usize,
}

/// Where a new entry goes.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Into the branch that this slot refers to.
    Into(usize, Value),
    /// Together with what this slot refers to into a new branch; the values of both, the old one first.
    Beside(usize, Branch, [Value; 2]),
    /// In the place of what this slot refers to.
    Instead(usize),
    /// It is there, or cannot be distinguished.
    Nowhere,
}

impl Tree {
    /// Creates an empty tree.
    pub fn new() -> Self {
        Self { end: FIRST }
    }

    /// Returns the bytes used.
    pub fn bytes(&self) -> usize {
        8 * (self.end - FIRST)
    }

    /// Adds a walk, if there is room.
    pub fn add(&mut self, words: &[AtomicU64], memo: &Memo, without_python: bool) {
        if memo.words.len() > MOST_WORDS {
            return;
        }
        let mut writer = Writer { words, end: self.end };
        if writer.word(ROOT) == 0 {
            let Some(root) = writer.write_branch(Branch { common: 0, bits: ROOT_BITS, place: 0 }, &[]) else { return };
            writer.refer(ROOT, Value::word(0), Child::Branch(root));
            self.end = writer.end;
        }
        if writer.insert(memo, without_python).is_some() {
            self.end = writer.end;
        }
    }
}

/// Adds to the tree in this memory, up to whose `end` it is used.
struct Writer<'a> {
    words: &'a [AtomicU64],
    end: usize,
}

impl Writer<'_> {
    fn word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// Publishes what was written before.
    fn refer(&self, from: usize, value: Value, to: Child) {
        self.words[from].store(slot(value, to), Ordering::Release);
    }

    fn branch(&self, at: usize) -> Branch {
        Branch::decode(self.word(at)).expect("a branch, which only this process writes")
    }

    fn entry(&self, at: usize) -> Entry {
        Entry::decode(std::array::from_fn(|index| self.word(at + index)))
    }

    /// Returns the place and the value of a word of an entry.
    fn saved(&self, at: usize, index: usize) -> Option<(u16, u64)> {
        let count = usize::from(self.entry(at).count);
        let value = at + Entry::WORDS + index;
        (index < count).then(|| {
            let places = self.word(at + Entry::WORDS + count + index / 4);
            ((places >> (16 * (index % 4))) as u16, self.word(value))
        })
    }

    fn slots(&self, at: usize) -> impl Iterator<Item = u64> + '_ {
        (at + 1..at + self.branch(at).size()).map(|at| self.word(at)).filter(|slot| *slot != 0)
    }

    /// Returns the slot of a value in a branch, or the empty one that it would have: half of them are empty.
    fn search(&self, at: usize, value: Value) -> Result<usize, usize> {
        let bits = self.branch(at).bits;
        let slots = (0..1 << bits).map(|step| at + 1 + ((value.start(bits) + step) & ((1 << bits) - 1)));
        for slot_at in slots {
            match self.word(slot_at) {
                0 => return Err(slot_at),
                slot if Value::of_slot(slot) == value => return Ok(slot_at),
                _ => {}
            }
        }
        unreachable!("a branch is never full")
    }

    /// Returns an entry below a branch that is not empty.
    fn entry_below(&self, mut at: usize) -> Option<usize> {
        loop {
            match child(self.slots(at).next()?) {
                Child::Branch(below) => at = below,
                Child::Entry(entry) => return Some(entry),
            }
        }
    }

    /// Returns where a walk belongs. The root exists.
    fn place_for(&self, memo: &Memo, without_python: bool) -> Place {
        // The branches on the way, and the slots that refer to them.
        let mut way = Vec::new();
        let mut slot_at = ROOT;
        let known = loop {
            let at = match child(self.word(slot_at)) {
                Child::Entry(at) => break at,
                Child::Branch(at) => at,
            };
            let branch = self.branch(at);
            way.push((slot_at, branch));
            let word = branch.common.checked_sub(1).map(|index| memo.words.get(usize::from(index)));
            let value = match word {
                None => Some(Value::registers(memo.sp, memo.bp)),
                Some(word) => word.filter(|word| u32::from(word.0) == branch.place).map(|word| Value::word(word.1)),
            };
            match value.map(|value| (value, self.search(at, value))) {
                Some((_, Ok(below))) => slot_at = below,
                Some((value, Err(_))) if branch.common == 0 => return Place::Into(slot_at, value),
                _ => match self.entry_below(at) {
                    Some(entry) => break entry,
                    None => return Place::Nowhere,
                },
            }
        };
        let entry = self.entry(known);
        if (entry.sp, entry.bp) != (memo.sp, memo.bp) {
            // Other registers with the same hash.
            return Place::Nowhere;
        }
        let same = |index: &usize| {
            let saved = self.saved(known, *index);
            saved.is_some() && saved == memo.words.get(*index).copied()
        };
        let words = (0..).take_while(same).count();
        let common = words as u16 + 1;
        let (slot_at, met) =
            way.iter().find(|(_, branch)| branch.common >= common).map_or((slot_at, 0), |(at, b)| (*at, b.common));
        match (self.saved(known, words), memo.words.get(words)) {
            (Some(old), Some(new)) if old.0 == new.0 => {
                let values = [Value::word(old.1), Value::word(new.1)];
                if met == common {
                    return Place::Into(slot_at, values[1]);
                }
                Place::Beside(slot_at, Branch { common, bits: BRANCH_BITS, place: new.0.into() }, values)
            }
            (None, None) if entry.stack == memo.stack && entry.without_python == without_python => Place::Nowhere,
            // What the walk reads no longer follows from what it has read: the rules have changed, and the new walk is right.
            _ => Place::Instead(slot_at),
        }
    }

    /// Adds a walk; the root exists. `None` if it is not added: then nothing refers to what was written.
    fn insert(&mut self, memo: &Memo, without_python: bool) -> Option<()> {
        let place = self.place_for(memo, without_python);
        let from = match place {
            Place::Into(from, _) | Place::Beside(from, ..) | Place::Instead(from) => from,
            Place::Nowhere => return None,
        };
        let (old, value) = (self.word(from), Value::of_slot(self.word(from)));
        let new = Child::Entry(self.write_entry(memo, without_python)?);
        match place {
            Place::Into(_, of_new) => {
                let Child::Branch(at) = child(old) else { return None };
                let Err(empty) = self.search(at, of_new) else { return None };
                let branch = self.branch(at);
                let mut slots: Vec<u64> = self.slots(at).collect();
                if 2 * slots.len() + 2 <= 1 << branch.bits {
                    self.refer(empty, of_new, new);
                    return Some(());
                }
                slots.push(slot(of_new, new));
                let larger = self.write_branch(Branch { bits: branch.bits + 1, ..branch }, &slots)?;
                self.refer(from, value, Child::Branch(larger));
            }
            Place::Beside(_, branch, [of_old, of_new]) => {
                if of_old == of_new {
                    return None;
                }
                let branch = self.write_branch(branch, &[slot(of_old, child(old)), slot(of_new, new)])?;
                self.refer(from, value, Child::Branch(branch));
            }
            Place::Instead(_) => {
                self.refer(from, value, new);
                self.invalidate(child(old));
            }
            Place::Nowhere => return None,
        }
        Some(())
    }

    /// Invalidates all entries of what was replaced: threads may remember where they are. No stack pointer is 0.
    fn invalidate(&self, replaced: Child) {
        match replaced {
            Child::Entry(at) => self.write(at, [0]),
            Child::Branch(at) => self.slots(at).for_each(|slot| self.invalidate(child(slot))),
        }
    }

    /// Takes memory; `None` if there is not enough.
    fn take(&mut self, words: usize) -> Option<usize> {
        let at = self.end;
        self.end = at.checked_add(words).filter(|end| *end <= self.words.len())?;
        Some(at)
    }

    fn write(&self, at: usize, words: impl IntoIterator<Item = u64>) {
        for (to, word) in self.words[at..].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    fn write_branch(&mut self, branch: Branch, slots: &[u64]) -> Option<usize> {
        if branch.bits > Branch::MOST_BITS {
            return None;
        }
        let at = self.take(branch.size())?;
        self.write(at, [branch.encode()].into_iter().chain(std::iter::repeat_n(0, 1 << branch.bits)));
        for slot in slots {
            if let Err(empty) = self.search(at, Value::of_slot(*slot)) {
                self.write(empty, [*slot]);
            }
        }
        Some(at)
    }

    fn write_entry(&mut self, memo: &Memo, without_python: bool) -> Option<usize> {
        let count = memo.words.len();
        let at = self.take(Entry::size(count))?;
        let span = memo.words.iter().map(|word| u32::from(word.0) + 1).max().unwrap_or(0);
        let entry = Entry { sp: memo.sp, bp: memo.bp, stack: memo.stack, count: count as u16, without_python, span };
        let values = memo.words.iter().map(|word| word.1);
        let packed = |places: &[(u16, u64)]| places.iter().rev().fold(0, |all, place| all << 16 | u64::from(place.0));
        let places = memo.words.chunks(4).map(packed);
        self.write(at, entry.encode().into_iter().chain(values).chain(places));
        Some(at)
    }
}
