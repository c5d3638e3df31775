//! The data of the page: a JSON header and columns of numbers, deflated and written as base64.
//!
//! ```text
//!   u32, little endian: length of the header
//!   header: JSON, with the name, kind, number of values and number of bytes of each column, in order
//!   columns: LEB128 numbers; in a delta column, the zigzag-coded difference from the previous value
//! ```
//!
//! Every stack is a node of one call tree (`node.parent`, `node.frame`; node 0 is the root). `gpu.*`, `cpu.*` and `hits.*` are
//! the sums by node over the whole recording, the same as in `.folded`, in nanoseconds; `memory.*` is GPU memory by node, at its
//! peak (`memory.when` 0) and at the end (1). `op.*`, `sample.*`, `wait.*`, `switch.*` and `call.*` are events, with times
//! relative to the start of the recording, for the timeline and for time ranges. `collective.*` are operations of communicators,
//! `member.*` their members, one operation after the other. Of too many events, they have a pseudo-random
//! sample: `seen` is their number, `stride` how many each stands for.

use std::io::{self, Write};

use flate2::{Compression, write::ZlibEncoder};
use serde::Serialize;

/// The largest integer that a number of the page represents exactly.
const MOST: u64 = (1 << 53) - 1;

/// One column of numbers.
#[derive(Serialize)]
pub struct Column {
    name: &'static str,
    delta: bool,
    count: usize,
    bytes: usize,
    #[serde(skip)]
    data: Vec<u8>,
}

impl Column {
    /// Encodes small or unordered numbers.
    pub fn plain(name: &'static str, values: impl IntoIterator<Item = u64>) -> Self {
        Self::encode(name, false, values)
    }

    /// Encodes numbers that are close to their predecessors.
    pub fn delta(name: &'static str, values: impl IntoIterator<Item = u64>) -> Self {
        Self::encode(name, true, values)
    }

    fn encode(name: &'static str, delta: bool, values: impl IntoIterator<Item = u64>) -> Self {
        let (mut data, mut count, mut previous) = (Vec::new(), 0, 0_i64);
        for value in values {
            let value = value.min(MOST);
            if delta {
                let change = value as i64 - previous;
                previous = value as i64;
                put(&mut data, ((change << 1) ^ (change >> 63)) as u64);
            } else {
                put(&mut data, value);
            }
            count += 1;
        }
        Self { name, delta, count, bytes: data.len(), data }
    }
}

fn put(data: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        data.push(value as u8 | 0x80);
        value >>= 7;
    }
    data.push(value as u8);
}

/// The header, with the list of columns.
#[derive(Serialize)]
struct Header<'a, T> {
    #[serde(flatten)]
    head: &'a T,
    columns: &'a [Column],
}

/// Writes the block as text that is harmless within an HTML element.
pub fn write(head: &impl Serialize, columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
    let header = serde_json::to_vec(&Header { head, columns })?;
    let length = u32::try_from(header.len()).map_err(io::Error::other)?;
    let mut block = ZlibEncoder::new(Base64 { out, rest: Vec::with_capacity(3) }, Compression::new(6));
    block.write_all(&length.to_le_bytes())?;
    block.write_all(&header)?;
    for column in columns {
        block.write_all(&column.data)?;
    }
    block.finish()?.finish()
}

/// Encodes what is written to it (RFC 4648, section 4).
struct Base64<'a> {
    out: &'a mut dyn Write,
    /// Fewer than three bytes.
    rest: Vec<u8>,
}

impl Base64<'_> {
    fn group(&mut self, bytes: &[u8]) -> io::Result<()> {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let number = bytes.iter().chain(&[0; 2]).take(3).fold(0, |number, byte| number << 8 | usize::from(*byte));
        let mut digits = [18, 12, 6, 0].map(|shift| DIGITS[number >> shift & 63]);
        digits[bytes.len() + 1..].fill(b'=');
        self.out.write_all(&digits)
    }

    fn finish(mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() { Ok(()) } else { self.group(&rest) }
    }
}

impl Write for Base64<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let missing = (3 - self.rest.len()) % 3;
        if self.rest.len() + bytes.len() < 3 {
            self.rest.extend(bytes);
            return Ok(bytes.len());
        }
        let (first, others) = bytes.split_at(missing);
        if missing > 0 {
            let mut group = std::mem::take(&mut self.rest);
            group.extend(first);
            self.group(&group)?;
        }
        let (groups, rest) = others.as_chunks::<3>();
        groups.iter().try_for_each(|group| self.group(group))?;
        self.rest = rest.to_vec();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
#[path = "../../../tests/support/html.rs"]
mod decoded;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{decoded::read, *};

    /// Check that every number and every text comes back, whatever the length of the block.
    #[test]
    fn blocks_round_trip() {
        for length in 0..40_u64 {
            let values: Vec<u64> = (0..length).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (11 + n)).collect();
            let columns = [Column::plain("a", values.clone()), Column::delta("b", values.clone())];
            let head = BTreeMap::from([("text", "x".repeat(length as usize) + "</script>\u{0}é")]);
            let mut text = Vec::new();
            write(&head, &columns, &mut text).expect("written");
            let text = String::from_utf8(text).expect("text");
            assert!(!text.contains('<'));
            let (header, columns) = read(&text);
            assert_eq!(header["text"], head["text"]);
            assert_eq!((&columns["a"], &columns["b"]), (&values, &values));
        }
    }

    /// Check that a number which the page cannot represent becomes the largest that it can.
    #[test]
    fn numbers_are_limited() {
        let mut text = Vec::new();
        let columns = [Column::plain("a", [u64::MAX, 1]), Column::delta("b", [1, u64::MAX, 0])];
        write(&BTreeMap::<&str, u8>::new(), &columns, &mut text).expect("written");
        let (_, columns) = read(std::str::from_utf8(&text).expect("text"));
        assert_eq!((&columns["a"], &columns["b"]), (&vec![MOST, 1], &vec![1, MOST, 0]));
    }
}
