//! The array of events in the file. Events are written member by member: a serializer takes twice the time, and a timeline has
//! millions of them.

use std::io::{self, Write};

use serde::Serialize;

/// What is written at once.
const BLOCK: usize = 64 << 10;

/// Writes events one at a time, with commas between them.
pub(super) struct Json<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    first: bool,
}

impl<'a> Json<'a> {
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, buffer: Vec::with_capacity(2 * BLOCK), first: true }
    }

    /// Writes an event with these members.
    pub fn event(&mut self, members: impl FnOnce(&mut Object<'_>)) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.buffer.extend_from_slice(b",\n");
        }
        write_object(&mut self.buffer, members);
        if self.buffer.len() >= BLOCK { self.write_out() } else { Ok(()) }
    }

    /// Returns the file, to which all events have been written.
    pub fn file(&mut self) -> io::Result<&mut dyn Write> {
        self.write_out()?;
        Ok(self.out)
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// A JSON object that is being written. Keys must not need escapes.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl Object<'_> {
    #[inline]
    fn key(&mut self, key: &str) {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    #[inline]
    pub fn number(&mut self, key: &str, number: impl Into<u64>) {
        self.key(key);
        put_number(self.out, number.into());
    }

    /// Writes microseconds, exact to the nanosecond.
    #[inline]
    pub fn micros(&mut self, key: &str, (negative, ns): (bool, u64)) {
        self.key(key);
        if negative {
            self.out.push(b'-');
        }
        put_number(self.out, ns / 1000);
        let rest = ns % 1000;
        if rest > 0 {
            let digits = [b'.', b'0' + (rest / 100) as u8, b'0' + (rest / 10 % 10) as u8, b'0' + (rest % 10) as u8];
            let zeros = if rest % 100 == 0 { 2 } else { usize::from(rest % 10 == 0) };
            self.out.extend_from_slice(&digits[..4 - zeros]);
        }
    }

    /// Writes text that needs no escapes.
    #[inline]
    pub fn word(&mut self, key: &str, word: &str) {
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(word.as_bytes());
        self.out.push(b'"');
    }

    #[inline]
    pub fn text(&mut self, key: &str, text: &str) {
        if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            self.word(key, text);
        } else {
            self.value(key, text);
        }
    }

    /// Writes `true`.
    #[inline]
    pub fn flag(&mut self, key: &str) {
        self.key(key);
        self.out.extend_from_slice(b"true");
    }

    /// Writes the three numbers of a grid or a block.
    #[inline]
    pub fn numbers(&mut self, key: &str, numbers: [u32; 3]) {
        self.key(key);
        for (before, number) in [b'[', b',', b','].into_iter().zip(numbers) {
            self.out.push(before);
            put_number(self.out, number.into());
        }
        self.out.push(b']');
    }

    pub fn value(&mut self, key: &str, value: &(impl Serialize + ?Sized)) {
        self.key(key);
        // Memory takes everything, and our values have text as keys.
        let _ = serde_json::to_writer(&mut *self.out, value);
    }

    #[inline]
    pub fn object(&mut self, key: &str, members: impl FnOnce(&mut Object<'_>)) {
        self.key(key);
        write_object(self.out, members);
    }
}

#[inline]
fn write_object(out: &mut Vec<u8>, members: impl FnOnce(&mut Object<'_>)) {
    out.push(b'{');
    members(&mut Object { out, empty: true });
    out.push(b'}');
}

#[inline]
fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value is read back as it was written.
    #[test]
    fn objects_are_json() {
        let mut out = Vec::new();
        let mut json = Json::new(&mut out);
        for ns in [0, 1, 10, 120, 999, 1_000, 1_010, 12_345_678] {
            json.event(|event| event.micros("ts", (ns == 10, ns))).expect("memory");
        }
        json.event(|event| {
            event.text("name", "a \"quoted\"\n\u{1} name\\");
            event.word("cat", "kernel");
            event.flag("flow_in");
            event.object("args", |args| {
                args.numbers("grid", [1, 2, 3]);
                args.number("bytes", u64::MAX);
                args.value("list", &["x"]);
            });
            event.object("empty", |_| {});
        })
        .expect("memory");
        json.file().expect("memory").write_all(b"]").expect("memory");
        let text = String::from_utf8([b"[", &out[..]].concat()).expect("text");
        let read: serde_json::Value = serde_json::from_str(&text).expect(&text);
        let times: Vec<f64> = (0..8).map(|at| read[at]["ts"].as_f64().expect("a number")).collect();
        assert_eq!(times, [0.0, 0.001, -0.01, 0.12, 0.999, 1.0, 1.01, 12_345.678]);
        let expected = serde_json::json!({
            "name": "a \"quoted\"\n\u{1} name\\", "cat": "kernel", "flow_in": true,
            "args": {"grid": [1, 2, 3], "bytes": u64::MAX, "list": ["x"]}, "empty": {},
        });
        assert_eq!(read[8], expected);
    }
}
