//! The recording: every event in the order it came, in a `.wscope` file. `docs/formats.md` specifies it byte by byte.
//!
//! ```text
//!   header   chunk             chunk             chunk
//!   |-----|  |--|----------|   |--|----------|   |--|-----             cut off by a crash: the first two are whole
//!            type, length,
//!            checksum, records
//! ```
//!
//! Two needs shape it. A crash must not cost more than the last chunk: each chunk is written at once, has a checksum, and
//! decodes without those before it. And a launch or a kernel must cost few bytes, for there are millions: within a chunk,
//! what repeats is a number in a table that the chunk builds up as it goes (stacks, threads, streams, kernels with their
//! dimensions), and what grows is the distance from the last.

mod bytes;
mod decode;
mod encode;
mod field;
mod frequent;
mod reader;
mod sized;
#[cfg(test)]
mod tests;
mod writer;

pub use self::{
    reader::{Damage, DamageReason, OpenError, Reader},
    writer::{WriteError, Writer},
};

/// The first bytes of a recording. The end-of-file character and the newline make a transfer in text mode visible.
pub const MAGIC: [u8; 8] = *b"WSCOPE\x1a\n";

/// The format's version. A reader refuses another major number; within one, newer writers add chunks and records
/// that older readers pass over.
pub const VERSION: (u16, u16) = (1, 0);

/// Bytes of the file's header: magic, major, minor, and four that are zero.
const HEADER: usize = 16;

/// Bytes of a chunk's header: type, length, checksum.
const CHUNK_HEADER: usize = 12;

/// The only type of chunk so far: events.
const EVENTS: [u8; 4] = *b"EVTS";

/// The most bytes a chunk's payload may have.
const CHUNK_MOST: usize = 16 << 20;

/// A chunk is written when it has this many bytes.
const CHUNK_FULL: usize = 128 << 10;

/// The most bytes one record may have.
const RECORD_MOST: usize = 8 << 20;

/// The checksum of a chunk covers its type and length too, so that a broken one is not passed over as unknown.
fn checksum(kind: [u8; 4], length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&kind);
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}
