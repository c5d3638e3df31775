//! Names, as the program passes them.

use core::ffi::{CStr, c_char};

/// The maximum length of a name.
pub const NAME: usize = 128;

/// What PyTorch's `emit_nvtx` appends to the name of an operator. It differs at every call.
const NUMBERS: [&[u8]; 3] = [b", seq = ", b", op_id = ", b", input_op_ids = "];

/// A name, truncated.
#[derive(Clone, Copy)]
pub struct Name {
    bytes: [u8; NAME],
    length: u8,
}

impl Name {
    pub const NONE: Self = Self { bytes: [0; NAME], length: 0 };

    /// Copies a text.
    pub fn of(text: &[u8]) -> Self {
        let mut name = Self::NONE;
        name.put(&text[..text.len().min(NAME)]);
        name
    }

    fn put(&mut self, text: &[u8]) -> bool {
        let at = usize::from(self.length);
        let fits = at + text.len() <= NAME;
        if fits {
            self.bytes[at..at + text.len()].copy_from_slice(text);
            self.length += text.len() as u8;
        }
        fits
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// # Safety
    /// `text` must be null or a C string.
    pub unsafe fn text(text: *const c_char) -> Self {
        if text.is_null() {
            return Self::NONE;
        }
        // SAFETY: as the caller guarantees.
        without_numbers(unsafe { CStr::from_ptr(text) }.to_bytes())
    }

    /// # Safety
    /// `text` must be null or a wide C string.
    pub unsafe fn wide(text: *const u32) -> Self {
        let mut name = Self::NONE;
        let mut at = text;
        // SAFETY: as the caller guarantees; nothing is read beyond the end.
        while let Some(code) = unsafe { at.as_ref() }.copied().filter(|code| *code != 0) {
            let mut encoded = [0; 4];
            let encoded = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut encoded);
            if !name.put(encoded.as_bytes()) {
                break;
            }
            at = at.wrapping_add(1);
        }
        name
    }

    /// The same with `#` for each number: `step 17` becomes `step #`.
    pub fn without_digits(&self) -> Self {
        let mut name = Self::NONE;
        for run in self.as_bytes().chunk_by(|a, b| a.is_ascii_digit() && b.is_ascii_digit()) {
            name.put(if run[0].is_ascii_digit() { b"#" } else { run });
        }
        name
    }
}

/// Returns the length of a number, or of a list in brackets.
fn value_length(text: &[u8]) -> usize {
    if !text.starts_with(b"[") {
        return text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    }
    let mut depth = 0;
    let closes = |byte: &u8| {
        depth += i32::from(*byte == b'[') - i32::from(*byte == b']');
        depth == 0
    };
    text.iter().position(closes).map_or(text.len(), |at| at + 1)
}

/// Copies a name without the numbers that PyTorch appends to it. Otherwise no two calls of an operator have the same name.
fn without_numbers(text: &[u8]) -> Name {
    let mut name = Name::NONE;
    let mut rest = text;
    while !rest.is_empty() {
        let skipped = NUMBERS.iter().find(|key| rest.starts_with(key)).map_or(0, |key| {
            let value = &rest[key.len()..];
            key.len() + value_length(value)
        });
        if skipped > 0 {
            rest = &rest[skipped..];
        } else if name.put(&rest[..1]) {
            rest = &rest[1..];
        } else {
            break;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &Name) -> &str {
        core::str::from_utf8(name.as_bytes()).expect("text")
    }

    /// Check that the numbers that differ at every call are removed, and nothing else.
    #[test]
    fn names_of_operators_have_no_call_numbers() {
        for (given, expected) in [
            ("aten::mul, seq = 41, op_id = 1732", "aten::mul"),
            (
                "aten::mm, op_id = 7, sizes = [[8, 64], [64, 2]], input_op_ids = [[1,0],[2,0]]",
                "aten::mm, sizes = [[8, 64], [64, 2]]",
            ),
            ("step 17, sequence", "step 17, sequence"),
            ("", ""),
        ] {
            assert_eq!(text(&without_numbers(given.as_bytes())), expected);
        }
    }

    /// Check that long names are truncated, and that numbers are replaced.
    #[test]
    fn names_are_bounded() {
        assert_eq!(without_numbers(&[b'x'; 500]).as_bytes().len(), NAME);
        assert_eq!(Name::of(&[b'x'; 500]).as_bytes().len(), NAME);
        assert_eq!(text(&Name::of(b"step 17 of 300").without_digits()), "step # of #");
    }
}
