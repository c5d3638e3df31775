//! The recording: every event in order of arrival, in a `.wscope` file. `docs/formats.md` specifies it byte by byte.
//!
//! ```text
//!   header   chunk             chunk             chunk
//!   |-----|  |--|----------|   |--|----------|   |--|-----             cut off by a crash: the first two are whole
//!            type, length,
//!            checksum, records
//! ```
//!
//! The format has two goals. A crash must not lose more than the last chunk: each chunk is written at once, has a
//! checksum, and can be decoded without the earlier ones. And launches and kernels must take few bytes, because there
//! are millions of them: within a chunk, repeated values are numbers in a table that the chunk builds up (stacks,
//! threads, streams, kernels with their dimensions), and increasing values are differences from the previous one.

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

/// The first bytes of a recording. The end-of-file character and the newline make a transfer in text mode detectable.
pub const MAGIC: [u8; 8] = *b"WSCOPE\x1a\n";

/// The format's version. A reader rejects other major versions; within one, newer writers add chunks and records that
/// older readers skip.
pub const VERSION: (u16, u16) = (1, 0);

/// Size of the file header: magic, major, minor, and four zero bytes.
const HEADER: usize = 16;

/// Size of a chunk header: type, length, checksum.
const CHUNK_HEADER: usize = 12;

/// The only type of chunk so far: events.
const EVENTS: [u8; 4] = *b"EVTS";

/// The maximum size of a chunk's payload.
const CHUNK_MOST: usize = 16 << 20;

/// A chunk is written when it reaches this size.
const CHUNK_FULL: usize = 128 << 10;

/// The maximum size of a record.
const RECORD_MOST: usize = 8 << 20;

/// Computes the checksum of a chunk. It covers the type and length too, so that a corrupt chunk is not skipped as
/// unknown.
fn checksum(kind: [u8; 4], length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&kind);
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}
