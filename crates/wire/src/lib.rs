//! What the injected library tells warpscope, message by message.
//!
//! The library connects to a Unix socket of type `SOCK_SEQPACKET`, so a packet arrives whole or not at all. A packet is
//! one or more messages, at most [`MAX_PACKET`] bytes; a message is a tag byte and its fields, little-endian, without
//! padding. The first message of a connection is [`Hello`]; the last, if the process ends in order, is [`Goodbye`].
//!
//! The reader trusts nothing: any cut or unknown message is a [`Malformed`] error, never a panic.

#![no_std]

pub mod known;
mod message;
mod refusal;

pub use message::*;
pub use refusal::*;

/// Raised when a message changes. Both sides come from one binary, so there is no negotiation: another version is refused.
pub const VERSION: u16 = 2;

/// The most bytes in one packet.
pub const MAX_PACKET: usize = 32 * 1024;

/// The most bytes of text in one message; longer text is cut by the sender.
pub const MAX_TEXT: usize = 8 * 1024;

/// What warpscope answers to [`Hello`], once it is ready to walk this process's stacks: one packet of one byte,
/// with the descriptor of the memory described in [`known`]. The library
/// waits for it a moment ([`WELCOME_PATIENCE_MS`]) before the first launch, and goes on without it.
pub const WELCOME: u8 = 1;

/// What warpscope sends when it stops recording while the process runs on: one packet of one byte. The library then flushes,
/// sends what there is and [`Goodbye`], and does nothing more.
pub const FINISH: u8 = 2;

/// How long the library waits for [`WELCOME`].
pub const WELCOME_PATIENCE_MS: i32 = 100;

/// The environment variable that tells the injected library where to connect.
pub const SOCKET_VARIABLE: &str = "WARPSCOPE_SOCKET";

/// How many seccomp filters warpscope itself runs under, in the environment of a command if there are any. A command with no
/// more than these may make the same system calls.
pub const FILTERS_VARIABLE: &str = "WARPSCOPE_SECCOMP_FILTERS";

/// The marker function's symbol in the injected library:
/// `extern "C" fn(correlation: u32, work: u32, session: u64, stack: u64)`. Its first instruction is a 5-byte nop. `stack` is
/// the id of the stack where the library recognised it (see [`known`]), else 0.
pub const MARKER_SYMBOL: &str = "warpscope_launch_marker";

/// A packet could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("malformed message from the injected library")
    }
}

impl core::error::Error for Malformed {}
