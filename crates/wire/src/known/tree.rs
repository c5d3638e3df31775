//! The tree of known stacks.
//!
//! Walks that begin with the same registers read the same word first, and as long as they read the same values, they read
//! the same words. So entries are the leaves of a tree. A branch names the first word in which the walks below it differ,
//! and has a child for each of its values. The root has one for each pair of registers.
//!
//! ```text
//!   Header: generation, root
//!             │
//!             └──> branch: sp, bp ──> branch: word 3 ──> entry: registers, values, places, the stack's id
//!                            │                   └─────> entry
//!                            └──> entry
//! ```
//!
//! A child is chosen by the hash of the value, so an entry is still compared completely.
//!
//! All of it is made of words of 8 bytes, which are addressed by their number from the start of the memory. What can be
//! reached from the root does not change, except for the slots of branches. Threads remember where they have found entries: one that is
//! replaced loses its stack pointer. When other code may have replaced code that was
//! walked, the generation changes, the tree is empty, and its memory is used again. So a reader reads the generation, then
//! the tree, then the generation again: what it has found is valid if both are the same.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::{BYTES, Header, MOST_WORDS};

/// The first words of an entry. `count` values follow, then `count` places of 16 bits: the distance of each value from `sp`,
/// in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The stack pointer at the marker.
    pub sp: u64,
    /// The frame pointer there.
    pub bp: u64,
    /// The stack's id.
    pub stack: u64,
    /// The number of words read, at most [`MOST_WORDS`].
    pub count: u16,
    /// Whether no frame is the interpreter's, so that there are no Python frames either.
    pub without_python: bool,
    /// The number of words from `sp` on that include all words read.
    pub span: u32,
}

impl Entry {
    /// The number of words before the values.
    pub const WORDS: usize = 4;

    /// Returns the number of words of an entry with `count` values.
    pub const fn size(count: usize) -> usize {
        Self::WORDS + count + count.div_ceil(4)
    }

    /// Converts it to words.
    pub const fn encode(self) -> [u64; Self::WORDS] {
        [
            self.sp,
            self.bp,
            self.stack,
            self.count as u64 | (self.without_python as u64) << 16 | (self.span as u64) << 32,
        ]
    }

    /// Converts words back.
    pub const fn decode([sp, bp, stack, numbers]: [u64; Self::WORDS]) -> Self {
        Self {
            sp,
            bp,
            stack,
            count: numbers as u16,
            without_python: numbers >> 16 & 1 != 0,
            span: (numbers >> 32) as u32,
        }
    }
}

/// The first word of a branch. `1 << bits` slots follow, which are searched from [`Value::start`] on, as if the first came after
/// the last, up to an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// How much the walks below it have in common: 0 for nothing, otherwise the registers and one less words. It increases from
    /// a branch to those below.
    pub common: u16,
    /// The logarithm to base 2 of the number of slots.
    pub bits: u16,
    /// The distance of the word in which they differ from `sp`, in words; 0 if they differ in the registers.
    pub place: u32,
}

impl Branch {
    /// The most slots, as a logarithm.
    pub const MOST_BITS: u16 = 18;

    /// Returns the number of words of a branch, with its slots.
    pub const fn size(self) -> usize {
        1 + (1 << self.bits)
    }

    /// Converts it to a word.
    pub const fn encode(self) -> u64 {
        self.common as u64 | (self.bits as u64) << 16 | (self.place as u64) << 32
    }

    /// Converts a word back; `None` if no branch has it.
    pub const fn decode(word: u64) -> Option<Self> {
        let branch = Self { common: word as u16, bits: (word >> 16) as u16, place: (word >> 32) as u32 };
        if branch.bits > Self::MOST_BITS { None } else { Some(branch) }
    }
}

/// What a child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// The branch at this word.
    Branch(usize),
    /// The entry at this word.
    Entry(usize),
}

const IS_BRANCH: u32 = 1 << 31;

/// Returns the content of a slot: the value's hash, and where the child is. It is never 0.
pub const fn slot(value: Value, child: Child) -> u64 {
    let at = match child {
        Child::Branch(at) => at as u32 | IS_BRANCH,
        Child::Entry(at) => at as u32,
    };
    at as u64 | (value.0 as u64) << 32
}

/// Returns the child of a slot that is not empty.
pub const fn child(slot: u64) -> Child {
    let at = slot as u32;
    if at & IS_BRANCH != 0 { Child::Branch((at & !IS_BRANCH) as usize) } else { Child::Entry(at as usize) }
}

/// The hash of a value by which a branch finds its child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(u32);

impl Value {
    /// The value of a word of the stack.
    pub const fn word(word: u64) -> Self {
        Self((word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32)
    }

    /// The value of the root: the registers.
    pub const fn registers(sp: u64, bp: u64) -> Self {
        Self::word(sp ^ bp.rotate_left(17))
    }

    /// The value of a slot that is not empty.
    pub const fn of_slot(slot: u64) -> Self {
        Self((slot >> 32) as u32)
    }

    /// Returns the first slot to search, of `1 << bits`.
    pub const fn start(self, bits: u16) -> usize {
        // As 64 bits: all of them may go.
        ((self.0 as u64) << bits >> 32) as usize
    }
}

/// The words of a stack, from its stack pointer on.
pub trait Words: Copy {
    /// Returns their number, not 0.
    fn count(self) -> u64;

    /// Returns the word at a place; any, if it is not one of them.
    fn at(self, place: u64) -> u64;
}

/// Returns the walk that starts at these registers and reads these words, and the place of its entry. `memory` begins with the header.
/// `expected` returns, for the generation that is read, the place of the entry that is compared first; 0 for none. In this
/// generation, an entry must have been found there.
#[inline]
pub fn find(
    header: &Header,
    memory: &[AtomicU64],
    registers: (u64, u64),
    words: impl Words,
    expected: impl FnOnce(u32) -> u32,
) -> Option<(u32, Entry)> {
    let generation = header.generation.load(Ordering::Acquire);
    let search = || search(memory, header.root.load(Ordering::Acquire), registers, words);
    let mut at = expected(generation) as usize;
    let mut searched = at == 0;
    if searched {
        at = search()?;
    }
    let entry = loop {
        match compare(memory, at, registers, words) {
            Some(entry) => break entry,
            None if searched => return None,
            None => (searched, at) = (true, search()?),
        }
    };
    // What was read may have been overwritten meanwhile. Then the generation has changed before.
    fence(Ordering::Acquire);
    (header.generation.load(Ordering::Relaxed) == generation).then_some((at as u32, entry))
}

/// Returns the entry at a place if it has these registers and words.
#[inline]
fn compare(memory: &[AtomicU64], at: usize, (sp, bp): (u64, u64), words: impl Words) -> Option<Entry> {
    let (head, rest) = memory.get(at..)?.split_first_chunk::<{ Entry::WORDS }>()?;
    let entry = Entry::decode(head.each_ref().map(|word| word.load(Ordering::Relaxed)));
    let here = entry.sp == sp && entry.bp == bp && u64::from(entry.span) <= words.count();
    (here && is_same(entry.count.into(), rest, words)).then_some(entry)
}

/// Follows the tree to the only entry that can have these words. All numbers are checked, because the memory may be overwritten
/// meanwhile.
#[inline]
fn search(memory: &[AtomicU64], root: u64, (sp, bp): (u64, u64), words: impl Words) -> Option<usize> {
    let (mut slot, mut value, mut common) = (root, Value::registers(sp, bp), -1);
    if root == 0 {
        return None;
    }
    loop {
        let at = match child(slot) {
            Child::Branch(at) => at,
            Child::Entry(at) => return Some(at),
        };
        let branch = Branch::decode(memory.get(at)?.load(Ordering::Relaxed))?;
        if i32::from(branch.common) <= common {
            return None;
        }
        common = branch.common.into();
        if common > 0 {
            let place = u64::from(branch.place);
            value = Value::word((place < words.count()).then(|| words.at(place))?);
        }
        slot = slot_of(memory.get(at + 1..at + branch.size())?, branch.bits, value)?;
    }
}

/// Returns the slot of a value.
#[inline]
fn slot_of(slots: &[AtomicU64], bits: u16, value: Value) -> Option<u64> {
    let start = value.start(bits);
    for step in 0..slots.len() {
        let slot = slots.get((start + step) & (slots.len() - 1))?.load(Ordering::Acquire);
        if slot == 0 {
            break;
        }
        if Value::of_slot(slot) == value {
            return Some(slot);
        }
    }
    None
}

/// Whether all words that the walk read are unchanged. What follows the entry's first words is `rest`.
#[inline]
fn is_same(count: usize, rest: &[AtomicU64], words: impl Words) -> bool {
    let Some((values, places)) = rest.split_at_checked(count) else { return false };
    if count > MOST_WORDS || places.len() < count.div_ceil(4) {
        return false;
    }
    let differs = |value: &AtomicU64, places: u64, index: u32| {
        words.at(places >> (16 * index) & 0xffff) ^ value.load(Ordering::Relaxed)
    };
    // One decision for four words.
    let (groups, left) = values.as_chunks::<4>();
    for ([first, second, third, fourth], places) in groups.iter().zip(places) {
        let places = places.load(Ordering::Relaxed);
        let first = differs(first, places, 0) | differs(second, places, 1);
        if first | differs(third, places, 2) | differs(fourth, places, 3) != 0 {
            return false;
        }
    }
    let places = places.get(groups.len()).map_or(0, |places| places.load(Ordering::Relaxed));
    left.iter().zip(0..).all(|(value, index)| differs(value, places, index) == 0)
}

const _: () = assert!(BYTES / 8 < IS_BRANCH as usize);
