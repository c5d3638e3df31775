//! Static tracepoints (USDT): places marked by a program's author, with a name and arguments.
//!
//! `<sys/sdt.h>` leaves a nop in the code and a note in the section `.note.stapsdt`: the nop's address, a counter with
//! which the program can check for listeners (the semaphore), and the location of each argument as an assembler
//! operand: `8@-16(%rbp)`, `-4@%eax`, `4@$5`.
//! The format: <https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>.
//!
//! While a probe is attached, the kernel keeps the semaphore incremented (`ref_ctr_offset`).

use elf::{Bytes, EM_X86_64, Elf, Segments};

use crate::Error;

/// libc has some 80, node 400.
const MAX_NOTES: u64 = 1 << 16;
const MAX_BYTES: u64 = 16 << 20;
const MAX_ARGUMENTS: usize = 12;

/// A static tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usdt {
    /// Its provider, such as `libc`.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Offset in the file of its nop.
    pub offset: u64,
    /// Offset in the file of the counter of its listeners.
    pub semaphore: Option<u64>,
    /// Its arguments; `None` for one that cannot be read (a floating-point number, an address by symbol).
    pub arguments: Vec<Option<Argument>>,
}

/// An argument: its location and how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether it can be negative.
    pub signed: bool,
    /// Its location.
    pub place: Place,
}

/// The location of an argument. Registers are numbered as in DWARF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A constant.
    Constant(i64),
    /// In a register, from this bit on.
    Register(u8, u8),
    /// In memory.
    Memory {
        /// A register that holds an address.
        base: Option<u8>,
        /// A register, and its factor.
        index: Option<(u8, u8)>,
        /// The constant to add.
        offset: i64,
    },
}

/// Returns all static tracepoints of a file. A tracepoint in several places is listed for each.
pub fn usdt<B: Bytes + ?Sized>(bytes: &B) -> Result<Vec<Usdt>, Error> {
    let elf = Elf::read(bytes)?;
    if elf.machine != EM_X86_64.0 || !elf.wide {
        return Err(Error::Machine(elf.machine));
    }
    let Some(notes) = elf.section(".note.stapsdt") else { return Ok(Vec::new()) };
    let notes = notes.read(bytes, MAX_BYTES, "notes of static tracepoints")?;
    let base = elf.section(".stapsdt.base").map(|section| section.place.address);
    let mut rest = notes.as_slice();
    let mut found = Vec::new();
    while let Some((note, tail)) = next_note(rest) {
        rest = tail;
        elf::Error::check_entries("list of static tracepoints", found.len() as u64 + 1, MAX_NOTES)?;
        found.extend(note.and_then(|description| read(description, base, &elf.segments)));
    }
    Ok(found)
}

/// Returns the next note, if it is a tracepoint, and the bytes after it.
fn next_note(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    const KIND: u32 = 3;
    let (name_size, size, kind) = (word(bytes, 0)?, word(bytes, 4)?, word(bytes, 8)?);
    let name = bytes.get(12..)?.get(..name_size as usize)?;
    let begin = 12 + (name_size as usize).next_multiple_of(4);
    let description = bytes.get(begin..)?.get(..size as usize)?;
    // The last one may lack its padding.
    let rest = bytes.get(begin + (size as usize).next_multiple_of(4)..).unwrap_or_default();
    Some(((kind == KIND && name == b"stapsdt\0").then_some(description), rest))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Parses three addresses and three texts. The linker does not relocate the addresses, but the second one is the
/// address of `.stapsdt.base` when the note was created, so the difference gives the relocation.
fn read(description: &[u8], base: Option<u64>, segments: &Segments) -> Option<Usdt> {
    let long = |at: usize| Some(u64::from_le_bytes(description.get(at..at + 8)?.try_into().ok()?));
    let (address, made_for, semaphore) = (long(0)?, long(8)?, long(16)?);
    let moved = base.map_or(0, |base| base.wrapping_sub(made_for));
    let mut texts = description.get(24..)?.split(|byte| *byte == 0);
    let mut text = || Some(String::from_utf8_lossy(texts.next()?).into_owned());
    let (provider, name, arguments) = (text()?, text()?, text()?);
    let semaphore = match semaphore {
        0 => None,
        address => Some(file_offset(address.wrapping_add(moved), segments)?),
    };
    Some(Usdt {
        provider,
        name,
        offset: file_offset(address.wrapping_add(moved), segments)?,
        semaphore,
        arguments: arguments.split_whitespace().take(MAX_ARGUMENTS).map(argument).collect(),
    })
}

/// Returns the offset in the file of the bytes at this address.
fn file_offset(address: u64, segments: &Segments) -> Option<u64> {
    segments.offset_of_vaddr(address).map(|(offset, _)| offset)
}

/// Parses `SIZE@OPERAND`; a negative size means a signed number.
fn argument(text: &str) -> Option<Argument> {
    let (size, operand) = text.split_once('@')?;
    let size: i8 = size.parse().ok()?;
    if !matches!(size.unsigned_abs(), 1 | 2 | 4 | 8) {
        return None;
    }
    Some(Argument { size: size.unsigned_abs(), signed: size < 0, place: place(operand)? })
}

/// Parses an operand in AT&T syntax.
fn place(operand: &str) -> Option<Place> {
    if let Some(value) = operand.strip_prefix('$') {
        return number(value).map(Place::Constant);
    }
    if let Some(name) = operand.strip_prefix('%') {
        let (register, shift) = register(name)?;
        return Some(Place::Register(register, shift));
    }
    let (offset, inner) = match operand.split_once('(') {
        None => return Some(Place::Memory { base: None, index: None, offset: number(operand)? }),
        Some((offset, inner)) => (offset, inner.strip_suffix(')')?),
    };
    let offset = if offset.is_empty() { 0 } else { number(offset)? };
    let whole = |text: &str| register(text.trim().strip_prefix('%')?).filter(|(_, shift)| *shift == 0);
    let mut parts = inner.split(',');
    let base = match parts.next()?.trim() {
        "" => None,
        name => Some(whole(name)?.0),
    };
    let index = match parts.next() {
        None => None,
        Some(name) => {
            let scale = parts.next().map_or(Some(1), |scale| scale.trim().parse().ok())?;
            Some((whole(name)?.0, scale))
        }
    };
    Some(Place::Memory { base, index, offset })
}

fn number(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    let value = value.cast_signed();
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Parses a general register by any of its names: its number, and its first bit.
fn register(name: &str) -> Option<(u8, u8)> {
    /// By DWARF number: 64, 32, 16 and 8 bits.
    const NAMES: [[&str; 4]; 8] = [
        ["rax", "eax", "ax", "al"],
        ["rdx", "edx", "dx", "dl"],
        ["rcx", "ecx", "cx", "cl"],
        ["rbx", "ebx", "bx", "bl"],
        ["rsi", "esi", "si", "sil"],
        ["rdi", "edi", "di", "dil"],
        ["rbp", "ebp", "bp", "bpl"],
        ["rsp", "esp", "sp", "spl"],
    ];
    if let Some(number) = NAMES.iter().position(|names| names.contains(&name)) {
        return Some((number as u8, 0));
    }
    let second_byte = ["ah", "dh", "ch", "bh"].iter().position(|known| *known == name);
    if let Some(number) = second_byte {
        return Some((number as u8, 8));
    }
    let digits = name.strip_prefix('r')?.trim_end_matches(['d', 'w', 'b']);
    digits.parse().ok().filter(|number| (8..16).contains(number)).map(|number| (number, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check every form of operand that compilers write, and that others are rejected.
    #[test]
    fn operands_are_parsed() {
        let memory = |base, index, offset| Place::Memory { base, index, offset };
        for (text, size, signed, place) in [
            ("8@%rdi", 8, false, Place::Register(5, 0)),
            ("-4@%eax", 4, true, Place::Register(0, 0)),
            ("1@%bh", 1, false, Place::Register(3, 8)),
            ("-2@%r12w", 2, true, Place::Register(12, 0)),
            ("4@$5", 4, false, Place::Constant(5)),
            ("-8@$-0x10", 8, true, Place::Constant(-16)),
            ("8@-16(%rbp)", 8, false, memory(Some(6), None, -16)),
            ("4@(%rsp)", 4, false, memory(Some(7), None, 0)),
            ("8@8(%rax,%rbx,4)", 8, false, memory(Some(0), Some((3, 4)), 8)),
            ("8@(%rax,%rbx)", 8, false, memory(Some(0), Some((3, 1)), 0)),
            ("8@(,%r9,8)", 8, false, memory(None, Some((9, 8)), 0)),
        ] {
            assert_eq!(argument(text), Some(Argument { size, signed, place }), "{text}");
        }
        for text in ["8f@%xmm0", "8@%xmm0", "3@%rax", "8@counter(%rip)", "8@%r16", "8", "@", "8@(%rax", "-128@$1", "8@"]
        {
            assert_eq!(argument(text), None, "{text}");
        }
    }

    /// Check that truncated and foreign notes are skipped without a panic or an endless loop.
    #[test]
    fn malformed_notes_are_skipped() {
        assert!(next_note(&[]).is_none());
        assert!(next_note(&[0xff; 64]).is_none());
        let mut note = [8_u32, 4, 1].map(u32::to_le_bytes).concat();
        note.extend(b"stapsdt\0abcd");
        assert_eq!(next_note(&note), Some((None, &[][..])), "another type");
        note[8] = 3;
        assert_eq!(next_note(&note), Some((Some(&b"abcd"[..]), &[][..])));
        assert_eq!(read(b"abcd", None, &Segments::default()), None);
        assert!(next_note(&note[..note.len() - 1]).is_none());
    }

    /// Check that thousands of changes to notes end without a panic, and with no more tracepoints than there is room for.
    #[test]
    fn changed_notes_are_survived() {
        let mut texts = [0x1000_u64, 0x2000, 0x3000].map(u64::to_le_bytes).concat();
        texts.extend(b"libc\0setjmp\x008@%rdi -4@%esi 8@-16(%rbp,%rbx,8) 4@$5\0");
        let mut note = [8, texts.len() as u32, 3].map(u32::to_le_bytes).concat();
        note.extend(b"stapsdt\0");
        note.extend(&texts);
        note.resize(note.len().next_multiple_of(4), 0);
        let notes = note.repeat(3);
        let mut number = 0x2545_f491_4f6c_dd1d_u64;
        let mut below = |end: usize| {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            (number % end as u64) as usize
        };
        let segments = Segments::default();
        for _ in 0..20_000 {
            let mut changed = notes.clone();
            for _ in 0..=below(6) {
                let at = below(changed.len());
                changed[at] = [0, 1, 0x7f, 0x80, 0xff, b'@', b'(', b'-', b'9', b'%'][below(10)];
            }
            changed.truncate(changed.len() - below(changed.len() / 2));
            let (mut rest, mut count) = (changed.as_slice(), 0);
            while let Some((found, tail)) = next_note(rest) {
                assert!(tail.len() < rest.len());
                (rest, count) = (tail, count + 1);
                let _ = found.and_then(|description| read(description, Some(0), &segments));
                let texts = found.unwrap_or_default().split(|byte| *byte == 0).map(String::from_utf8_lossy);
                for text in texts {
                    let read = text.split_whitespace().take(MAX_ARGUMENTS).filter_map(argument).count();
                    assert!(read <= MAX_ARGUMENTS);
                }
            }
            assert!(count <= changed.len() / 12);
        }
        for text in [
            "8@99999999999999999999(%rbp)",
            "8@(%rax,%rbx,999)",
            "999@$9",
            "8@$",
            "-@%",
            "8@-(%rax)",
            "\u{fffd}@\u{fffd}",
        ] {
            assert_eq!(argument(text), None, "{text}");
        }
    }
}
