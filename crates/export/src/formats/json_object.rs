//! JSON objects, written member by member: a serializer takes twice the time, and a timeline has millions of objects.

use serde::Serialize;

/// A JSON object that is being written. Keys must not need escapes; the compiler knows their lengths, so that copying one takes
/// few instructions.
pub(crate) struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl Object<'_> {
    #[inline]
    fn separate(&mut self) {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
    }

    #[inline]
    fn key<const N: usize>(&mut self, key: &[u8; N]) {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(key);
        self.out.extend_from_slice(b"\":");
    }

    #[inline]
    pub fn number<const N: usize>(&mut self, key: &[u8; N], number: impl Into<u64>) {
        self.key(key);
        put_number(self.out, number.into());
    }

    /// Writes microseconds, exact to the nanosecond.
    #[inline]
    pub fn micros<const N: usize>(&mut self, key: &[u8; N], (negative, ns): (bool, u64)) {
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
    pub fn word<const N: usize>(&mut self, key: &[u8; N], word: &str) {
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(word.as_bytes());
        self.out.push(b'"');
    }

    #[inline]
    pub fn text<const N: usize>(&mut self, key: &[u8; N], text: &str) {
        if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            self.word(key, text);
        } else {
            self.key(key);
            // Memory takes everything.
            let _ = serde_json::to_writer(&mut *self.out, text);
        }
    }

    /// Writes `true`.
    #[inline]
    pub fn flag<const N: usize>(&mut self, key: &[u8; N]) {
        self.key(key);
        self.out.extend_from_slice(b"true");
    }

    /// Writes the three numbers of a grid or a block.
    #[inline]
    pub fn numbers<const N: usize>(&mut self, key: &[u8; N], numbers: [u32; 3]) {
        self.key(key);
        for (before, number) in [b'[', b',', b','].into_iter().zip(numbers) {
            self.out.push(before);
            put_number(self.out, number.into());
        }
        self.out.push(b']');
    }

    /// Writes a value that serializes itself, under any key.
    pub fn value(&mut self, key: &str, value: &(impl Serialize + ?Sized)) {
        self.separate();
        let _ = serde_json::to_writer(&mut *self.out, key);
        self.out.push(b':');
        // Memory takes everything, and our values have text as keys.
        let _ = serde_json::to_writer(&mut *self.out, value);
    }

    #[inline]
    pub fn object<const N: usize>(&mut self, key: &[u8; N], members: impl FnOnce(&mut Object<'_>)) {
        self.key(key);
        write_object(self.out, members);
    }
}

/// Writes an object with these members.
#[inline]
pub(crate) fn write_object(out: &mut Vec<u8>, members: impl FnOnce(&mut Object<'_>)) {
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
        let read = |members: &dyn Fn(&mut Object<'_>)| {
            let mut out = Vec::new();
            write_object(&mut out, members);
            serde_json::from_slice::<serde_json::Value>(&out).expect("JSON")
        };
        for (ns, micros) in
            [(0, 0.0), (1, 0.001), (10, 0.01), (120, 0.12), (999, 0.999), (1_010, 1.01), (12_345_678, 12_345.678)]
        {
            assert_eq!(read(&|event| event.micros(b"ts", (false, ns)))["ts"], micros);
            assert_eq!(read(&|event| event.micros(b"ts", (true, ns)))["ts"], -micros);
        }
        let all = read(&|event| {
            event.text(b"name", "a \"quoted\"\n\u{1} name\\");
            event.word(b"cat", "kernel");
            event.flag(b"flow_in");
            event.object(b"args", |args| {
                args.numbers(b"grid", [1, 2, 3]);
                args.number(b"bytes", u64::MAX);
                args.value("a \"list\"", &["x"]);
            });
            event.object(b"empty", |_| {});
        });
        let expected = serde_json::json!({
            "name": "a \"quoted\"\n\u{1} name\\", "cat": "kernel", "flow_in": true,
            "args": {"grid": [1, 2, 3], "bytes": u64::MAX, "a \"list\"": ["x"]}, "empty": {},
        });
        assert_eq!(all, expected);
    }
}
