//! Tracepoints by name: their fields and types, from tracefs.

use std::fmt::Write;

/// A field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    offset: usize,
    size: usize,
    signed: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    /// Characters in the record itself.
    Text,
    /// A word with the position of the characters in the record.
    TextElsewhere,
    /// Of no interest to the user.
    Other,
}

/// The layout of a tracepoint's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format(Vec<Field>);

impl Format {
    /// Parses a `format` file. Unknown lines are ignored.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(field).filter(|f| !f.name.starts_with("common_")).collect())
    }

    /// Returns the offset of a number in a record, its size in bytes, and whether it is signed.
    pub fn number(&self, name: &str) -> Option<(u16, u8, bool)> {
        let field = self.0.iter().find(|field| field.name == name && field.kind == Kind::Number)?;
        Some((field.offset.try_into().ok()?, field.size.try_into().ok()?, field.signed))
    }

    /// Returns the names of its numeric fields.
    pub fn numbers(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|field| field.kind == Kind::Number).map(|field| field.name.as_str())
    }

    /// Formats a record as `name=value name=value`.
    pub fn text(&self, record: &[u8]) -> String {
        let mut text = String::new();
        for field in &self.0 {
            let Some(bytes) = record.get(field.offset..field.offset.saturating_add(field.size)) else { continue };
            let value = match field.kind {
                Kind::Number => number(bytes, field.signed),
                Kind::Text => Some(characters(bytes)),
                Kind::TextElsewhere => bytes.first_chunk().and_then(|word| {
                    let word = u32::from_ne_bytes(*word);
                    let (at, length) = ((word & 0xffff) as usize, (word >> 16) as usize);
                    record.get(at..at.checked_add(length)?.min(record.len())).map(characters)
                }),
                Kind::Other => None,
            };
            if let Some(value) = value {
                let gap = if text.is_empty() { "" } else { " " };
                let _ = write!(text, "{gap}{}={value}", field.name);
            }
        }
        text
    }
}

/// `field:unsigned int xid; offset:8; size:4; signed:0;`
fn field(line: &str) -> Option<Field> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let mut numbers =
        parts.filter_map(|part| part.split_once(':')).map(|(name, value)| (name, value.parse::<usize>().ok()));
    let mut value = |wanted| numbers.find(|(name, _)| *name == wanted).and_then(|(_, value)| value);
    let (offset, size, signed) = (value("offset")?, value("size")?, value("signed")? != 0);
    let (kind, name) = declaration.rsplit_once([' ', '*'])?;
    // Arguments of system calls are recorded as whole registers: of an `int`, only the lower half counts.
    let (size, signed) = match (kind, size) {
        ("int", 8) => (4, true),
        ("unsigned int", 8) => (4, false),
        _ => (size, signed),
    };
    let is_text = kind.contains("char");
    let kind = match name.find('[') {
        _ if kind.contains("__data_loc") => {
            if is_text {
                Kind::TextElsewhere
            } else {
                Kind::Other
            }
        }
        Some(_) => {
            if is_text {
                Kind::Text
            } else {
                Kind::Other
            }
        }
        None if matches!(size, 1 | 2 | 4 | 8) => Kind::Number,
        None => Kind::Other,
    };
    let name = name.split('[').next().unwrap_or(name).to_owned();
    Some(Field { name, offset, size, signed, kind })
}

fn number(bytes: &[u8], signed: bool) -> Option<String> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let value = u64::from_le_bytes(wide);
    let unused = 64 - 8 * bytes.len() as u32;
    Some(if signed { (value << unused).cast_signed().wrapping_shr(unused).to_string() } else { value.to_string() })
}

fn characters(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).replace(char::is_whitespace, "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: test
ID: 7
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:char prev_comm[4];\toffset:8;\tsize:4;\tsigned:0;
\tfield:int code;\toffset:12;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] msg;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long mask[2];\toffset:20;\tsize:16;\tsigned:0;
";

    /// Check that numbers are read with their sign and text at its position, and that unreadable fields are left out.
    #[test]
    fn numbers_and_text_are_formatted() {
        let format = Format::parse(SWITCH);
        let mut record = vec![0; 48];
        record[8..12].copy_from_slice(b"ab\0x");
        record[12..16].copy_from_slice(&(-5_i32).to_ne_bytes());
        record[16..20].copy_from_slice(&(40_u32 | 3 << 16).to_ne_bytes());
        record[40..43].copy_from_slice(b"hi\0");
        assert_eq!(format.text(&record), "prev_comm=ab code=-5 msg=hi");
        assert_eq!(format.text(&record[..14]), "prev_comm=ab");
        record[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(format.text(&record), "prev_comm=ab code=-5");
        assert_eq!(Format::parse("field:;offset:x"), Format::default());
        // The program passed a 32-bit number sign-extended.
        let ioctl =
            "field:int fd;\toffset:0;\tsize:8;\tsigned:0;\n\tfield:unsigned int cmd;\toffset:8;\tsize:8;\tsigned:0;";
        let record = [0xffff_ffff_ffff_ff9c_u64, 0xffff_ffff_c020_462a].map(u64::to_ne_bytes).concat();
        assert_eq!(Format::parse(ioctl).text(&record), format!("fd=-100 cmd={}", 0xc020_462a_u32));
    }
}
