//! Known stacks: memory that warpscope writes and the injected library reads, so that a launch whose stack was walked before
//! need not be walked again.
//!
//! A walk is decided by the registers it starts from and by the words of the stack that it reads. An [`Entry`] holds those of
//! one walk: if a thread is at the same place and all words are as they were, its stack is the one with the entry's id. Words
//! are compared whole, so that this is exact.
//!
//! ```text
//! [ Header: generation, buckets ] [ Entry, values, places ] [ Entry, values, places ] ...
//! ```
//!
//! Entries are written once and never change. A bucket's newest entry comes first; each names the next one. Only the
//! generation makes entries void: it changes when other code may have taken the place of some that was walked.

use core::sync::atomic::AtomicU32;

/// The size of the memory.
pub const BYTES: usize = 4 << 20;

/// The number of buckets, a power of two.
pub const BUCKETS: usize = 2048;

/// The most words of one entry.
pub const MOST_WORDS: usize = 256;

/// The most entries of one bucket that a reader looks at.
pub const MOST_TRIED: usize = 64;

/// What the memory begins with.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// Entries of another generation are void.
    pub generation: AtomicU32,
    /// Not used.
    pub unused: u32,
    /// Where the newest entry of each bucket is, in units of 8 bytes from the start; 0 for none.
    pub buckets: [AtomicU32; BUCKETS],
}

/// One walk. Its words follow: `count` values of 8 bytes, then `count` places of 2 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Where the next entry of the bucket is, as in [`Header::buckets`].
    pub next: u32,
    /// The generation it belongs to.
    pub generation: u32,
    /// The stack pointer at the marker.
    pub sp: u64,
    /// The frame pointer there.
    pub bp: u64,
    /// The stack's id.
    pub stack: u64,
    /// How many words were read.
    pub count: u32,
    /// How many words from `sp` on hold all of them.
    pub span: u32,
}

impl Entry {
    /// The bytes of an entry with `count` words, a multiple of 8.
    pub const fn size(count: usize) -> usize {
        (size_of::<Self>() + count * 10).next_multiple_of(8)
    }
}

/// The bucket of a walk that starts at these registers.
pub const fn bucket(sp: u64, bp: u64) -> usize {
    let mixed = (sp ^ bp.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize & (BUCKETS - 1)
}

const _: () = {
    assert!(size_of::<Header>() == 8 + 4 * BUCKETS);
    assert!(size_of::<Entry>() == 40);
    assert!(BYTES / 8 <= u32::MAX as usize);
};
