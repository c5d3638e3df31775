//! Writes protocol buffers: <https://protobuf.dev/programming-guides/encoding/>.
//!
//! Two formats need it ([`crate::formats::pprof`] and [`crate::formats::perfetto`]) and what is pushed ([`crate::profiles`]), each a small
//! part of its schema. Formats write millions of small messages, so a message is a buffer that is used again.

/// The wire type of a varint.
const VARINT: u64 = 0;
/// The wire type of a field with eight bytes.
const FIXED_64: u64 = 1;
/// The wire type of a field with a length.
const LENGTH: u64 = 2;

/// A message under construction. Fields with the default value may be omitted: a reader cannot tell the difference.
#[derive(Debug, Default)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// The encoded fields.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all fields.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds an unsigned integer, a boolean or an enumeration.
    pub fn number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// Adds an int64 that is never negative; larger values saturate.
    pub fn amount(&mut self, field: u32, value: u64) {
        self.number(field, value.min(i64::MAX as u64));
    }

    /// Adds a fixed64, or the bits of a double.
    pub fn fixed(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED_64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Adds a text.
    pub fn text(&mut self, field: u32, text: &str) {
        self.octets(field, text.as_bytes());
    }

    /// Adds bytes.
    pub fn octets(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds repeated integers in one field.
    pub fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        self.message(field, |inner| values.into_iter().for_each(|value| inner.varint(value)));
    }

    /// Adds a message.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        self.tag(field, LENGTH);
        let start = self.bytes.len();
        // Most messages are shorter than 128 bytes: their length is one byte. Longer ones are moved.
        self.bytes.push(0);
        fill(self);
        let length = self.bytes.len() - start - 1;
        if length < 0x80 {
            self.bytes[start] = length as u8;
            return;
        }
        let mut size = [0; 10];
        let used = encode(length as u64, &mut size);
        self.bytes.splice(start..=start, size[..used].iter().copied());
    }

    /// Adds a message that is already encoded.
    pub fn embed(&mut self, field: u32, other: &Self) {
        self.octets(field, &other.bytes);
    }

    fn tag(&mut self, field: u32, kind: u64) {
        self.varint(u64::from(field) << 3 | kind);
    }

    fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.bytes.push(value as u8);
            return;
        }
        let mut bytes = [0; 10];
        let used = encode(value, &mut bytes);
        self.bytes.extend_from_slice(&bytes[..used]);
    }
}

/// Encodes an integer, seven bits per byte, and returns the number of bytes.
fn encode(mut value: u64, bytes: &mut [u8; 10]) -> usize {
    let mut used = 0;
    loop {
        let rest = value >> 7;
        bytes[used] = value as u8 & 0x7f | if rest == 0 { 0 } else { 0x80 };
        used += 1;
        if rest == 0 {
            return used;
        }
        value = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the examples of the encoding's specification, and a message with a length of two bytes.
    #[test]
    fn encodes_as_specified() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.bytes(), [0x08, 0x96, 0x01]);
        message.clear();
        message.text(2, "testing");
        assert_eq!(message.bytes(), *b"\x12\x07testing");
        message.clear();
        message.packed(6, [3, 270, 86_942]);
        assert_eq!(message.bytes(), [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        message.clear();
        message.message(3, |inner| inner.text(1, &"x".repeat(200)));
        assert_eq!((&message.bytes()[..6], message.bytes().len()), (&[0x1a, 0xcb, 0x01, 0x0a, 0xc8, 0x01][..], 206));
        message.clear();
        message.number(1, u64::MAX);
        assert_eq!(message.bytes(), [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }
}
