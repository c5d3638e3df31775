//! Messages with text or bytes of variable length: a tag, a number, a length, the bytes.

use crate::encoding::{Scalar, take};
use crate::packet::{MAX_TEXT, Malformed};

pub(crate) const NAME: u8 = 64;
pub(crate) const DEVICE: u8 = 65;
pub(crate) const NOTICE: u8 = 66;
pub(crate) const FUNCTION: u8 = 67;
pub(crate) const RANGE_NAME: u8 = 68;
pub(crate) const PAUSE: u8 = 69;
pub(crate) const STALL_REASON: u8 = 71;
pub(crate) const CUBIN_PART: u8 = 72;

/// A time in which another client used CUPTI, so that there are no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause<'a> {
    /// Start, CLOCK_MONOTONIC.
    pub from: u64,
    /// End, CLOCK_MONOTONIC; `u64::MAX` while it lasts.
    pub to: u64,
    /// The other client, as far as known.
    pub name: &'a [u8],
}

impl<'a> Pause<'a> {
    /// Bytes before the name.
    const TIMES: usize = 16;
    /// The most bytes of a name.
    const MOST_NAME: usize = MAX_TEXT - Self::TIMES;

    fn name(&self) -> &'a [u8] {
        &self.name[..self.name.len().min(Self::MOST_NAME)]
    }

    /// Returns the size of the message on the wire.
    pub fn size(&self) -> usize {
        7 + Self::TIMES + self.name().len()
    }

    /// Writes a [`crate::Message::Pause`]; `out` must hold [`Self::size`] bytes.
    pub fn encode(&self, number: u32, out: &mut [u8]) {
        out[0] = PAUSE;
        out[1..5].copy_from_slice(&number.to_le_bytes());
        out[5..7].copy_from_slice(&((Self::TIMES + self.name().len()) as u16).to_le_bytes());
        out[7..15].copy_from_slice(&self.from.to_le_bytes());
        out[15..23].copy_from_slice(&self.to.to_le_bytes());
        out[23..self.size()].copy_from_slice(self.name());
    }

    pub(crate) fn decode(mut bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (from, to) = (u64::get(take(&mut bytes, 8)?), u64::get(take(&mut bytes, 8)?));
        Ok(Self { from, to, name: bytes })
    }
}

/// The kind of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Notice {
    /// No usable libcupti: the text lists the locations tried.
    NoCupti = 1,
    /// Another CUPTI client is subscribed (error 39): the text names it if possible.
    OtherSubscriber = 2,
    /// A CUPTI call failed: the text contains the call and the error.
    CuptiFailed = 3,
    /// CUPTI rejected our clock; times are shifted by an offset measured once.
    ForeignClock = 4,
    /// The libcupti in use.
    Library = 5,
    /// Kernels cannot be sampled: the text is the number of the error, then the call and the error.
    NoStalls = 6,
    /// Launches cannot be measured: the text is the number of the error, then the call and the error.
    NoLimits = 7,
}

impl Notice {
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        [
            Self::NoCupti,
            Self::OtherSubscriber,
            Self::CuptiFailed,
            Self::ForeignClock,
            Self::Library,
            Self::NoStalls,
            Self::NoLimits,
        ]
        .into_iter()
        .find(|n| *n as u32 == code)
    }
}

/// Returns the size of a text message on the wire, with the text truncated at [`MAX_TEXT`].
pub fn text_size(text: &[u8]) -> usize {
    7 + text.len().min(MAX_TEXT)
}

fn encode(tag: u8, id: u32, text: &[u8], out: &mut [u8]) {
    let text = &text[..text.len().min(MAX_TEXT)];
    out[0] = tag;
    out[1..5].copy_from_slice(&id.to_le_bytes());
    out[5..7].copy_from_slice(&(text.len() as u16).to_le_bytes());
    out[7..7 + text.len()].copy_from_slice(text);
}

/// Writes a [`crate::Message::Name`]; `out` must hold [`text_size`] bytes.
pub fn encode_name(id: u32, text: &[u8], out: &mut [u8]) {
    encode(NAME, id, text, out);
}

/// Writes a [`crate::Message::RangeName`]; `out` must hold [`text_size`] bytes.
pub fn encode_range_name(id: u32, text: &[u8], out: &mut [u8]) {
    encode(RANGE_NAME, id, text, out);
}

/// Writes a [`crate::Message::StallReason`]; `out` must hold [`text_size`] bytes.
pub fn encode_stall_reason(index: u32, text: &[u8], out: &mut [u8]) {
    encode(STALL_REASON, index, text, out);
}

/// Writes a [`crate::Message::CubinPart`] of at most [`MAX_TEXT`] bytes; `out` must hold [`text_size`] bytes.
pub fn encode_cubin_part(number: u32, bytes: &[u8], out: &mut [u8]) {
    encode(CUBIN_PART, number, bytes, out);
}

/// Writes a [`crate::Message::Device`]; `out` must hold [`text_size`] bytes.
pub fn encode_device(index: u32, text: &[u8], out: &mut [u8]) {
    encode(DEVICE, index, text, out);
}

/// Writes a [`crate::Message::Notice`]; `out` must hold [`text_size`] bytes.
pub fn encode_notice(notice: Notice, text: &[u8], out: &mut [u8]) {
    encode(NOTICE, notice as u32, text, out);
}

/// Writes a [`crate::Message::Function`]; `out` must hold [`text_size`] bytes.
pub fn encode_function(number: u32, text: &[u8], out: &mut [u8]) {
    encode(FUNCTION, number, text, out);
}

pub(crate) fn decode<'a>(bytes: &mut &'a [u8]) -> Result<(u32, &'a [u8]), Malformed> {
    let id = u32::get(take(bytes, 4)?);
    let length = usize::from(u16::get(take(bytes, 2)?));
    if length > MAX_TEXT {
        return Err(Malformed);
    }
    Ok((id, take(bytes, length)?))
}
