//! Known stacks: memory that warpscope writes and the injected library reads, so that the stack of a launch need not be
//! walked again if it was walked before.
//!
//! The result of a walk depends only on the registers it starts from and on the words of the stack that it reads. An
//! [`Entry`] holds those of one walk: if a thread has the same registers and all words are unchanged, its stack is the
//! one with the entry's id. Whole words are compared, so the result is exact.
//!
//! ```text
//! [ Header: generation, buckets ] [ Entry, values, places ] [ Entry, values, places ] ...
//! ```
//!
//! The header also says where this process has its Python frames, so that a thread can compute the hash of its own Python
//! stack instead of having them copied and hashed by the probe.
//!
//! Entries are written once and never change. A bucket's newest entry comes first; each links to the next one. Only the
//! generation invalidates entries: it changes when other code may have replaced code that was walked.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The size of the memory.
pub const BYTES: usize = 4 << 20;

/// The number of buckets, a power of two.
pub const BUCKETS: usize = 2048;

/// The maximum number of words of one entry: two for each of 512 frames.
pub const MOST_WORDS: usize = 1024;

/// The maximum number of entries of one bucket that a reader tries.
pub const MOST_TRIED: usize = 64;

/// The start of the memory.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// Entries of another generation are invalid.
    pub generation: AtomicU32,
    /// 1 if `python` is valid. It is set before the memory is shared.
    pub has_python: u32,
    /// The layout of the interpreter in this process.
    pub python: Python,
    /// The process image.
    pub image: u32,
    /// 1 if a launch whose stacks are known need not go through the probe ([`crate::launches`]).
    pub without_probe: AtomicU32,
    /// Python stacks by their hash, which [`python_row`] assigns to a row.
    pub pythons: [[PythonStack; PYTHON_PLACES]; PYTHON_ROWS],
    /// The offset of each bucket's newest entry, in units of 8 bytes from the start; 0 for none.
    pub buckets: [AtomicU32; BUCKETS],
}

/// Where a process that runs Python 3.12 or later has a thread's frames: offsets in bytes.
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
    /// In a frame: a byte that says whether the interpreter's loop was entered here.
    pub frame_owner: u16,
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

/// Adds a value to a hash of Python frames. The probe has the same function.
pub const fn mix(hash: u64, value: u64) -> u64 {
    let hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

/// One walk. Its words follow: `count` values of 8 bytes, then `count` places of 2 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// The offset of the bucket's next entry, as in [`Header::buckets`].
    pub next: u32,
    /// The generation it belongs to.
    pub generation: u32,
    /// The stack pointer at the marker.
    pub sp: u64,
    /// The frame pointer there.
    pub bp: u64,
    /// The stack's id.
    pub stack: u64,
    /// The number of words read.
    pub count: u16,
    /// 1 if no frame is the interpreter's, so that there are no Python frames either.
    pub without_python: u16,
    /// The number of words from `sp` on that cover all of them.
    pub span: u32,
}

impl Entry {
    /// Returns the size in bytes of an entry with `count` words, a multiple of 8.
    pub const fn size(count: usize) -> usize {
        (size_of::<Self>() + count * 10).next_multiple_of(8)
    }
}

/// Returns the bucket of a walk that starts at these registers.
pub const fn bucket(sp: u64, bp: u64) -> usize {
    let mixed = (sp ^ bp.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize & (BUCKETS - 1)
}

const _: () = {
    assert!(size_of::<Header>() == 48 + 16 * PYTHON_ROWS * PYTHON_PLACES + 4 * BUCKETS);
    assert!(size_of::<Entry>() == 40);
    assert!(BYTES / 8 <= u32::MAX as usize);
};
