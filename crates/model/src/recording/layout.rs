//! The headers of a recording and of its chunks.

/// The first bytes of a recording. The end-of-file character and the newline make a transfer in text mode detectable.
pub const MAGIC: [u8; 8] = *b"WSCOPE\x1a\n";

/// The format's version. A reader rejects other major versions; within one, newer writers add chunks and records that
/// older readers skip.
pub const VERSION: (u16, u16) = (1, 0);

/// Size of the file header: magic, major, minor, and four zero bytes.
pub const HEADER: usize = 16;

/// Size of a chunk header: type, length, checksum.
pub const CHUNK_HEADER: usize = 12;

/// The only type of chunk so far: events.
pub const EVENTS: [u8; 4] = *b"EVTS";

/// The maximum size of a chunk's payload.
pub const CHUNK_MOST: usize = 16 << 20;

/// A chunk is written when it reaches this size.
pub const CHUNK_FULL: usize = 128 << 10;

/// The maximum size of a record.
pub const RECORD_MOST: usize = 8 << 20;

/// Computes the checksum of a chunk. It covers the type and length too, so that a corrupt chunk is not skipped as
/// unknown.
pub fn checksum(kind: [u8; 4], length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&kind);
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}
