//! Converts an instruction's offset to its line, using the table in its code object.
//!
//! The table has had three formats. Up to 3.9 `co_lnotab`: pairs of (bytes, lines) to add. In 3.10 `co_linetable` (PEP
//! 626): pairs of a range's length and its line's difference, where -128 means no line. From 3.11 on the location table
//! (PEP 657, `Objects/locations.md`): entries of variable length, with columns.

/// Returns the line of an instruction. `first` is the first line of the code, `instruction` the position from the
/// frame: its offset in bytes; in 3.10 in instructions. If the table has no line for it, returns the last one before
/// it.
pub fn line(minor: u8, table: &[u8], first: u32, instruction: u32) -> u32 {
    let Ok(instruction) = i32::try_from(instruction) else { return first };
    let at = instruction as u64;
    let line = match minor {
        ..=9 => lnotab(table, first, at),
        10 => linetable(table, first, 2 * at),
        _ => locations(table, first, at),
    };
    u32::try_from(line).unwrap_or(first)
}

fn lnotab(table: &[u8], first: u32, at: u64) -> i64 {
    let (mut line, mut address) = (i64::from(first), 0);
    for pair in table.chunks_exact(2) {
        address += u64::from(pair[0]);
        if address > at {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    line
}

fn linetable(table: &[u8], first: u32, at: u64) -> i64 {
    let (mut line, mut end) = (i64::from(first), 0);
    for pair in table.chunks_exact(2) {
        end += u64::from(pair[0]);
        let difference = pair[1] as i8;
        if difference != -128 {
            line += i64::from(difference);
        }
        if at < end {
            break;
        }
    }
    line
}

fn locations(table: &[u8], first: u32, at: u64) -> i64 {
    let (mut line, mut end) = (i64::from(first), 0);
    let mut rest = table;
    while let Some((&head, after)) = rest.split_first() {
        rest = after;
        // In code units of two bytes.
        end += 2 * (u64::from(head & 7) + 1);
        match head >> 3 & 15 {
            0..=9 => rest = rest.get(1..).unwrap_or_default(),
            code @ 10..=12 => {
                line = line.saturating_add(i64::from(code - 10));
                rest = rest.get(2..).unwrap_or_default();
            }
            13 => line = line.saturating_add(signed(&mut rest)),
            14 => {
                line = line.saturating_add(signed(&mut rest));
                for _ in 0..3 {
                    number(&mut rest);
                }
            }
            _ => {}
        }
        if at < end {
            break;
        }
    }
    line
}

/// Six bits per byte, lowest first; the seventh means that more follow.
fn number(rest: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    while let Some((&byte, after)) = rest.split_first() {
        *rest = after;
        if shift < 60 {
            value |= u64::from(byte & 63) << shift;
        }
        shift += 6;
        if byte & 64 == 0 {
            break;
        }
    }
    value
}

/// The sign is the lowest bit.
fn signed(rest: &mut &[u8]) -> i64 {
    let value = number(rest);
    let size = (value >> 1) as i64;
    if value & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::pythons::{Python, installed};

    /// Prints, for a function with loops, long jumps and lines that go back, its table and the line of each instruction
    /// according to Python itself.
    const DUMP: &str = r#"
import dis, sys
source = "def f(x):\n  y = 0\n  for i in range(x):\n    y += (i *\n      2 +\n      i)\n" + "\n" * 300 + \
    "    if y > 3:\n      y = [z\n        for z in range(3)]\n" + "    y += 1\n" * 150 + "  with open('x') as g:\n" + \
    "    try:\n      return y\n    finally:\n      del g\n"
scope = {}
exec(compile("\n" * 40 + source, "sample.py", "exec"), scope)
code = scope["f"].__code__
table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
print(code.co_firstlineno)
print(table.hex())
lines, current = dict(dis.findlinestarts(code)), None
ranges = list(code.co_lines()) if sys.version_info >= (3, 10) else []
for at in range(0, len(code.co_code), 2):
    current = lines.get(at, current)
    line = next((l for s, e, l in ranges if s <= at < e), None) if ranges else current
    print(at, line or 0)
"#;

    /// Check every instruction of a sample function against each installed Python.
    #[test]
    fn lines_match_python() {
        for Python { minor, path: python } in installed() {
            let output = std::process::Command::new(&python).args(["-c", DUMP]).output().expect("it runs");
            let text = String::from_utf8(output.stdout).expect("it prints text");
            let mut lines = text.lines();
            let first: u32 = lines.next().expect("the first line").parse().expect("a number");
            let hex = lines.next().expect("the table").as_bytes();
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex");
            let table: Vec<u8> = hex.chunks(2).map(byte).collect();
            let mut checked = 0;
            for pair in lines {
                let (at, expected) = pair.split_once(' ').expect("two numbers");
                let (at, expected): (u32, u32) = (at.parse().expect("a number"), expected.parse().expect("a number"));
                let at = if minor == 10 { at / 2 } else { at };
                if expected != 0 {
                    assert_eq!(line(minor, &table, first, at), expected, "3.{minor} at {at}");
                    checked += 1;
                }
            }
            assert!(checked > 600, "3.{minor}: {checked} instructions");
            eprintln!("3.{minor}: {checked} instructions of {}", python.display());
        }
    }

    /// A frame that has not started is at the first line; malformed tables yield some line, and no panic.
    #[test]
    fn malformed_tables_do_not_panic() {
        assert_eq!(line(8, &[2, 1], 7, u32::MAX), 7);
        for minor in 8..15 {
            assert_eq!(line(minor, &[], 7, 100), 7);
            line(minor, &[0xff; 33], 7, 100);
            line(minor, &[0x80, 0xf8, 0xf0], 7, 1 << 30);
            // The largest possible differences, more than a line number can hold.
            let largest = [0xe8, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f].repeat(40);
            line(minor, &largest, 7, 1 << 30);
        }
    }
}
