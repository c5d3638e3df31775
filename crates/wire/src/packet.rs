//! Packets: their limits, and those that cannot be decoded.

/// The maximum size of a packet, in bytes.
pub const MAX_PACKET: usize = 32 * 1024;

/// The maximum length of text in one message, in bytes; the sender truncates longer text.
pub const MAX_TEXT: usize = 8 * 1024;

/// A packet could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("malformed message from the injected library")
    }
}

impl core::error::Error for Malformed {}
