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
mod layout;
mod reader;
mod sized;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use self::{encode::Encoder, field::Field};
pub use self::{
    layout::{MAGIC, VERSION},
    reader::{Damage, DamageReason, OpenError, Reader},
    writer::{WriteError, Writer},
};

/// Returns the events of a chunk's payload that an [`Encoder`] built.
pub(crate) fn events(payload: &[u8]) -> impl Iterator<Item = crate::event::Event> + '_ {
    let (mut decoder, mut cursor) = (decode::Decoder::default(), bytes::Cursor::new(payload));
    std::iter::from_fn(move || match decoder.next(&mut cursor)? {
        decode::Record::Event(event) => Some(event),
        decode::Record::Unknown => None,
    })
}
