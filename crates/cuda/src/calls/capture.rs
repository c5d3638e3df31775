//! What probes capture of a call, and how BPF programs read it.

use super::values::Direction;

/// What a probe should capture of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The number of words, from the first.
    pub words: u8,
    /// The word with the pointer to the 8 bytes of the result, read at return. The pointer may be null.
    pub out: Option<u8>,
    /// Bytes to read at entry.
    pub payload: Option<Payload>,
}

/// Bytes behind one pointer argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A C string.
    Text {
        /// The word with the pointer.
        word: u8,
    },
    /// A struct.
    Bytes {
        /// The word with the pointer.
        word: u8,
        /// The struct's size: at most 256.
        length: u16,
    },
}

/// How to sum a call's bytes from its words alone, for a BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// The words whose product, shifted left, is the number of bytes. The first is always present.
    pub bytes: [Option<u8>; 2],
    /// Bits to shift the product left by.
    pub shift: u8,
    /// The direction of the bytes, if the call is a copy.
    pub direction: Option<Way>,
}

/// Where a launch has its kernel and dimensions, for a BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launches {
    /// The word that identifies the kernel.
    pub word: u8,
    /// It is a handle, not the address of a host function.
    pub handle: bool,
    /// Where grid and block are, if the call has them.
    pub dims: Option<DimsPlace>,
}

/// Where the dimensions of a launch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimsPlace {
    /// Four words from this one on: x and y of the grid, z of the grid, and the same of the block.
    Packed(u8),
    /// Six words from this one on.
    Words(u8),
    /// The first 24 bytes of the payload.
    Payload,
}

/// Where a copy's direction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The low 32 bits of this word, a `cudaMemcpyKind`: see [`Direction`].
    Word(u8),
    /// The function.
    Fixed(Direction),
}
