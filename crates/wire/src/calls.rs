//! Traced calls: memory that warpscope creates and the injected library writes API calls to.
//!
//! ```text
//! [ Header: what to capture of each function ] [ Ring, Ring, ... ] [ words of ring 0 ] [ words of ring 1 ] ...
//! ```
//!
//! Each thread of the program has a ring of its own: the thread is the only writer, and warpscope the only reader. The
//! thread writes an event and then advances [`Ring::head`]; warpscope reads it and then advances [`Ring::tail`]. Neither
//! waits for the other. At the entry of a call the thread also reserves the space of its exit, so that a call is written
//! whole or not at all; one that does not fit is counted in [`Ring::dropped`].
//!
//! An event is a number of words: a [`Head`], the time, and what its kind has:
//!
//! | kind | words |
//! | --- | --- |
//! | [`THREAD`] | thread id |
//! | [`ENTER`] | correlation id and, in the upper half, the CPU; the call's parameters, padded with zeros |
//! | [`EXIT`] | result and, in the upper half, the length of the payload; the 8 bytes of the result argument, if [`HAS_OUT`]; the payload, padded with zeros |
//! | [`FIRST`] | nothing: the thread's first runtime call is not traced |
//!
//! The program may write anything here: the reader checks every number.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The number of callback ids of a domain that can be traced.
pub const FUNCTIONS: usize = 1024;

/// The driver's and the runtime's domain.
pub const DOMAINS: usize = 2;

/// The number of rings, and how many of them are large.
pub const RINGS: usize = 128;
const LARGE_RINGS: usize = 16;

/// Words of a large and of a small ring, powers of two: 2 MiB and 256 KiB.
const LARGE: usize = 1 << 18;
const SMALL: usize = 1 << 15;

/// The most bytes of parameters that are captured.
pub const MOST_PARAMETERS: usize = 128;

/// The most bytes of a struct behind a pointer argument, and of text.
pub const MOST_STRUCT: usize = 256;
/// As above.
pub const MOST_TEXT: usize = 4096;

/// [`Capture::length`] of text, which ends with a zero byte.
pub const TEXT: u16 = u16::MAX;

/// The deepest nesting of calls that is followed.
pub const MOST_DEPTH: usize = 16;

/// What to capture of the calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Capture {
    /// 1 if calls are traced.
    pub traced: u16,
    /// The bytes of parameters to copy at entry.
    pub parameters: u16,
    /// One more than the offset of the pointer to the result argument, of which 8 bytes are read at exit; 0 for none.
    pub out: u16,
    /// One more than the offset of the pointer to the payload; 0 for none.
    pub payload: u16,
    /// The length of the payload, or [`TEXT`].
    pub length: u16,
}

impl Capture {
    /// Returns the most words of the event at exit.
    pub const fn exit_words(&self) -> usize {
        let payload = match (self.payload, self.length) {
            (0, _) => 0,
            (_, TEXT) => MOST_TEXT,
            (_, length) => length as usize,
        };
        3 + (self.out != 0) as usize + payload.div_ceil(8)
    }

    /// Returns itself with every number within bounds.
    pub const fn checked(self) -> Self {
        const fn at_most(value: u16, most: usize) -> u16 {
            if value as usize > most { most as u16 } else { value }
        }
        const fn inside(offset: u16, parameters: u16) -> u16 {
            if offset as usize + 7 > parameters as usize { 0 } else { offset }
        }
        let parameters = at_most(self.parameters, MOST_PARAMETERS);
        Self {
            traced: self.traced,
            parameters,
            out: inside(self.out, parameters),
            payload: inside(self.payload, parameters),
            length: if self.length == TEXT { TEXT } else { at_most(self.length, MOST_STRUCT) },
        }
    }
}

/// The start of the memory. warpscope writes it before it passes the memory on.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Header {
    /// By domain and callback id.
    pub functions: [[Capture; FUNCTIONS]; DOMAINS],
    /// Calls of threads that found no free ring.
    pub without_ring: AtomicU64,
    /// Calls that were nested too deeply.
    pub too_deep: AtomicU64,
    /// The rings.
    pub rings: [Ring; RINGS],
}

/// A ring that no thread uses.
pub const FREE: u32 = 0;
/// A ring that a thread writes to.
pub const USED: u32 = 1;
/// The thread has exited; warpscope frees the ring when it has read it.
pub const LEFT: u32 = 2;

/// The positions of one ring. Both count words since the start.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Ring {
    /// Words written.
    pub head: AtomicU64,
    /// Calls that did not fit.
    pub dropped: AtomicU64,
    /// [`FREE`], [`USED`] or [`LEFT`].
    pub state: AtomicU32,
    /// Words read, in a cache line of its own.
    pub read: Read,
}

/// The reader's position.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Read {
    /// Words read.
    pub tail: AtomicU64,
}

/// Returns the number of words of a ring, a power of two.
pub const fn words(ring: usize) -> usize {
    if ring < LARGE_RINGS { LARGE } else { SMALL }
}

/// Returns the offset in bytes of a ring's words.
pub const fn offset(ring: usize) -> usize {
    let large = if ring < LARGE_RINGS { ring } else { LARGE_RINGS };
    size_of::<Header>().next_multiple_of(4096) + 8 * (large * LARGE + (ring - large) * SMALL)
}

/// The size of the memory.
pub const BYTES: usize = offset(RINGS);

/// The thread that writes to the ring from here on.
pub const THREAD: u8 = 1;
/// A call begins.
pub const ENTER: u8 = 2;
/// A call returns.
pub const EXIT: u8 = 3;
/// The thread's first runtime call is not traced.
pub const FIRST: u8 = 4;

/// Of [`ENTER`]: the launch announced by the marker belongs to this call.
pub const LAUNCHES: u8 = 1;
/// Of [`ENTER`]: the thread's first runtime call. It may have begun before CUDA was initialised.
pub const IS_FIRST: u8 = 2;
/// Of [`EXIT`]: the result argument follows.
pub const HAS_OUT: u8 = 4;

/// The first word of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// [`THREAD`], [`ENTER`], [`EXIT`] or [`FIRST`].
    pub kind: u8,
    /// Bits as above.
    pub flags: u8,
    /// The domain and callback id: see [`function`].
    pub function: u16,
    /// The number of traced calls around this one.
    pub depth: u16,
    /// The number of words, this one included.
    pub words: u16,
}

impl Head {
    /// Converts it to a word.
    pub const fn encode(self) -> u64 {
        let Self { kind, flags, function, depth, words } = self;
        kind as u64 | (flags as u64) << 8 | (function as u64) << 16 | (depth as u64) << 32 | (words as u64) << 48
    }

    /// Converts a word back.
    pub const fn decode(word: u64) -> Self {
        Self {
            kind: word as u8,
            flags: (word >> 8) as u8,
            function: (word >> 16) as u16,
            depth: (word >> 32) as u16,
            words: (word >> 48) as u16,
        }
    }
}

/// Returns the number of a function: its domain, 1 for the driver and 2 for the runtime, and its callback id. `None` for
/// others.
pub const fn function(domain: u32, cbid: u32) -> Option<u16> {
    if (domain == 1 || domain == 2) && (cbid as usize) < FUNCTIONS {
        Some(((domain - 1) * FUNCTIONS as u32 + cbid) as u16)
    } else {
        None
    }
}

const _: () = {
    assert!(BYTES <= 64 << 20);
    assert!(Capture { traced: 1, parameters: 0, out: 1, payload: 1, length: TEXT }.exit_words() < SMALL);
    assert!(offset(0).is_multiple_of(4096) && offset(RINGS - 1) + 8 * SMALL == BYTES);
};
