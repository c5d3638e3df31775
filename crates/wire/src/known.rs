//! Known stacks: memory that warpscope writes and the injected library reads, so that the stack of a launch need not be
//! walked again if it was walked before.
//!
//! The result of a walk depends only on the registers it starts from and on the words of the stack that it reads. An
//! entry holds those of one walk: if a thread has the same registers and all words are unchanged, its stack is the
//! one with the entry's id. Whole words are compared, so the result is exact.
//!
//! Entries are the leaves of a [tree], in which a thread finds the only one that can be its stack.
//!
//! The header also says where this process has its Python frames, so that a thread can compute the hash of its own Python
//! stack instead of having them copied and hashed by the probe.
//!
//! There is no limit on the distance between words: cuBLAS has frames of more than 32 KiB. Python frames are not
//! compared word by word: the thread hashes its own, and the hash must be one that the probe has confirmed.

pub mod tree;

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The size of the memory.
pub const BYTES: usize = 4 << 20;

/// The maximum number of words of one entry: two for each of 512 frames.
pub const MOST_WORDS: usize = 1024;

/// The start of the memory.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// What was read while it changed is invalid.
    pub generation: AtomicU32,
    /// 1 if `python` is valid. It is set before the memory is shared.
    pub has_python: u32,
    /// The root of the tree, as in [`tree::slot`]; 0 if the tree is empty.
    pub root: AtomicU64,
    /// The layout of the interpreter in this process.
    pub python: Python,
    /// The process image.
    pub image: u32,
    /// 1 if a launch whose stacks are known need not go through the probe ([`crate::launches`]).
    pub without_probe: AtomicU32,
    /// Python stacks by their hash, which [`python_row`] assigns to a row.
    pub pythons: [[PythonStack; PYTHON_PLACES]; PYTHON_ROWS],
}

/// Where a process that runs Python has a thread's frames: offsets in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Python {
    /// The address of the count of code objects created so far; 0 if the interpreter has it.
    pub versions: u64,
    /// Otherwise its offset in the interpreter.
    pub interpreter_versions: u32,
    /// The process image: the start of the hash.
    pub image: u32,
    /// In the thread state: the interpreter's address.
    pub thread_interpreter: u16,
    /// In the thread state: the thread's id, as `pthread_self` returns it.
    pub thread_id: u16,
    /// In the thread state: the address of the innermost frame, or of a structure with it.
    pub thread_frame: u16,
    /// If not 0, that structure has the frame's address at this offset less 64.
    pub frame_link: u16,
    /// In a frame: the address of its caller.
    pub frame_previous: u16,
    /// In a frame: its code object.
    pub frame_code: u16,
    /// In a frame: the address of its instruction.
    pub frame_instruction: u16,
    /// In a frame: a byte that says whether the interpreter's loop was entered here; 0 if it always is.
    pub frame_owner: u16,
    /// What distinguishes code objects that are not numbered.
    pub code: Code,
}

/// Code objects of Python before 3.12, which does not number them: another one may have the same address, and so may all that it
/// refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Code {
    /// The first field that distinguishes them.
    pub fields: u16,
    /// The number of words from there on; 0 if code objects are numbered.
    pub words: u16,
    /// Of those, the addresses of the name, the file and the line table.
    pub name: u16,
    /// See `name`.
    pub file: u16,
    /// See `name`.
    pub lines: u16,
    /// In a bytes object: its length; its hash follows.
    pub bytes_size: u16,
    /// In a bytes object: its data.
    pub bytes_data: u16,
    /// In a str object: its length; its hash follows.
    pub text_length: u16,
    /// In a str object: the state.
    pub text_state: u16,
    /// The lowest bit of the kind in the state.
    pub text_kind_shift: u16,
    /// In a str object: its characters, if they are ASCII.
    pub text_ascii: u16,
    /// Otherwise.
    pub text_compact: u16,
}

/// A Python stack. A reader reads the hash, the id, and the hash again: the id is valid if both are the one it looks for.
#[derive(Debug)]
#[repr(C)]
pub struct PythonStack {
    /// The hash of its frames; 0 while the id changes.
    pub hash: AtomicU64,
    /// Its id.
    pub id: AtomicU64,
}

/// The number of rows of Python stacks, a power of two, and of stacks in a row.
pub const PYTHON_ROWS: usize = 1024;
/// See [`PYTHON_ROWS`].
pub const PYTHON_PLACES: usize = 4;

/// Returns the row of a hash.
pub const fn python_row(hash: u64) -> usize {
    (hash >> 32) as usize & (PYTHON_ROWS - 1)
}

/// The maximum number of Python frames that are hashed, with the interpreter's internal ones.
pub const MOST_PYTHON_FRAMES: usize = 1024;

/// Adds a value to a hash. The probe has the same function.
const fn mix(hash: u64, value: u64) -> u64 {
    let hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

/// The most bytes of an object that are hashed.
pub const MOST_HASHED: u64 = 4096;

/// Returns the hash of `bytes` bytes. `word` returns the 8 bytes at an offset; those behind the end are ignored. The probe has the same
/// function.
#[inline(always)]
pub fn hash_bytes(bytes: u64, word: impl Fn(u64) -> u64) -> u64 {
    let hashed = if bytes < MOST_HASHED { bytes } else { MOST_HASHED };
    let (whole, left) = (hashed & !31, hashed & 31);
    // They do not wait for each other.
    let [mut first, mut second, mut third, mut fourth] = [0; 4];
    let mut at = 0;
    while at < whole {
        first = mix(first, word(at));
        second = mix(second, word(at + 8));
        third = mix(third, word(at + 16));
        fourth = mix(fourth, word(at + 24));
        at += 32;
    }
    if left > 0 {
        let part = |offset: u64| match left.saturating_sub(offset) {
            0 => 0,
            bytes @ 1..8 => word(at + offset) & ((1 << (8 * bytes)) - 1),
            _ => word(at + offset),
        };
        first = mix(first, part(0));
        second = mix(second, part(8));
        third = mix(third, part(16));
        fourth = mix(fourth, part(24));
    }
    mix(mix(mix(mix(first, second), third), fourth), bytes)
}

/// Returns what distinguishes a code object: the hashes of its fields, its name, its file and its line table. The probe has the same
/// function.
#[inline]
pub const fn code_tag(fields: u64, name: u64, file: u64, lines: u64) -> u64 {
    mix(mix(mix(fields, name), file), lines) | 1
}

/// The hash of a thread's Python frames, from the innermost outwards: a sum in which each frame has its own factor, because sums are
/// faster than a chain of [`mix`]. The probe computes the same.
#[derive(Debug)]
pub struct PythonHash {
    sum: u64,
    factor: u64,
}

impl PythonHash {
    /// Odd, so that no power of it is 0.
    const FACTOR: u64 = 0xd134_2543_de82_ef95;

    /// The hash of no frames.
    pub const EMPTY: Self = Self { sum: 0, factor: 1 };

    /// Adds the next frame: its code object, with its tag if it has no number, its instruction, and whether the interpreter's loop was
    /// entered there.
    #[must_use]
    pub const fn with(self, code: u64, instruction: u64, owner: u8) -> Self {
        let frame = mix(code.wrapping_mul(Self::FACTOR), instruction ^ (owner as u64) << 56);
        let sum = self.sum.wrapping_add(frame.wrapping_mul(self.factor));
        Self { sum, factor: self.factor.wrapping_mul(Self::FACTOR) }
    }

    /// Returns the hash of the stack, of an image that has created so many code objects, 0 if they are not counted.
    pub const fn stack(self, image: u32, created: u32) -> u64 {
        mix(mix(self.sum, image as u64), created as u64)
    }
}

const _: () = {
    assert!(size_of::<Header>() == 80 + 16 * PYTHON_ROWS * PYTHON_PLACES);
};

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::collections::HashSet;

    /// The hash of bytes is that of whole blocks with zeros behind the end, as the probe computes it, for every length.
    #[test]
    fn bytes_are_hashed_in_blocks() {
        let bytes: std::vec::Vec<u8> = (0..5000_u32).map(|n| ((n * n) >> 3) as u8 | 1).collect();
        let word = |at: u64| u64::from_le_bytes(bytes[at as usize..][..8].try_into().unwrap());
        for length in (0..300).chain(4000..4200) {
            let hashed = length.min(MOST_HASHED as usize);
            let mut padded = bytes[..hashed].to_vec();
            padded.resize(hashed.next_multiple_of(32), 0);
            let mut lanes = [0; 4];
            for (index, word) in padded.chunks(8).enumerate() {
                lanes[index % 4] = mix(lanes[index % 4], u64::from_le_bytes(word.try_into().unwrap()));
            }
            let expected = mix(mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]), length as u64);
            assert_eq!(hash_bytes(length as u64, word), expected, "{length}");
        }
    }

    fn hash(frames: &[(u64, u64, u8)]) -> u64 {
        let add = |hash: PythonHash, &(code, instruction, owner): &(u64, u64, u8)| hash.with(code, instruction, owner);
        frames.iter().fold(PythonHash::EMPTY, add).stack(3, 1000)
    }

    /// Stacks that differ in one field of one frame, in the order of two frames, or in their depth have different hashes.
    #[test]
    fn stacks_that_differ_anywhere_have_different_hashes() {
        // Recursion: all frames alike, the hardest case for a sum.
        let code = 0x7f12_3456_7890_u64;
        let alike = [(code, code + 200, 0); 300];
        let mut seen = HashSet::from([hash(&alike)]);
        for depth in 0..alike.len() {
            for change in [(8, 0, 0), (0, 2, 0), (0, 0, 1), (0, 1 << 40, 0)] {
                let mut frames = alike;
                let (code, instruction, owner) = frames[depth];
                frames[depth] = (code ^ change.0, instruction ^ change.1, owner ^ change.2);
                assert!(seen.insert(hash(&frames)), "{change:?} at {depth}");
            }
            assert!(seen.insert(hash(&alike[..depth])), "{depth} frames");
        }
        let different: [_; 300] =
            core::array::from_fn(|depth| (code + 128 * depth as u64, code + 300 * depth as u64, 0));
        seen.insert(hash(&different));
        for (one, other) in (0..300).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let mut frames = different;
            frames.swap(one, other);
            assert!(seen.insert(hash(&frames)), "{one} and {other} swapped");
        }
    }
}
