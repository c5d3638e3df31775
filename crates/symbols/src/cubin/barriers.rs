//! Where a cubin's functions have barriers (`BAR`).
//!
//! A warp that waits at a barrier is not always reported at the barrier. On an H200, samples were at the instruction after
//! `BAR.SYNC` in one kernel and not in another, so the distance is no constant: the code says where the barrier is.

use std::collections::HashMap;

use object::{
    Endianness, SectionIndex,
    elf::{FileHeader64, SHT_SYMTAB, STT_FUNC},
    read::elf::{FileHeader, SectionHeader as _, Sym as _},
};

/// The size of an instruction, on all GPUs that can be sampled.
const INSTRUCTION: usize = 16;
/// The bits of an instruction that identify its operation, and those of `BAR`. The next three bits are the kind of its
/// operands.
const OPERATION: u64 = 0x1ff;
const BARRIER: u64 = 0x11d;
/// How far after a barrier, in bytes, its waits are reported at most.
const REACH: u64 = 4 * INSTRUCTION as u64;
/// The most barriers of a cubin.
const MOST: usize = 1 << 16;

/// The barriers of a cubin.
#[derive(Debug, Default)]
pub struct Barriers(HashMap<Box<[u8]>, Vec<u64>>);

impl Barriers {
    /// Finds them. A malformed cubin has none.
    pub fn of(cubin: &[u8]) -> Self {
        Self(find(cubin).unwrap_or_default())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the offset of the barrier at which a warp waits that was reported at an offset in a function.
    pub fn of_wait(&self, function: &[u8], offset: u64) -> Option<u64> {
        let all = self.0.get(function)?;
        let before = all.partition_point(|barrier| *barrier <= offset);
        all[..before].last().copied().filter(|barrier| offset - barrier <= REACH)
    }
}

fn find(cubin: &[u8]) -> Option<HashMap<Box<[u8]>, Vec<u64>>> {
    let header = FileHeader64::<Endianness>::parse(cubin).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, cubin).ok()?;
    let symbols = sections.symbols(endian, cubin, SHT_SYMTAB).ok()?;
    let mut found = HashMap::new();
    // Functions of a valid cubin do not overlap.
    let (mut bytes_left, mut left) = (cubin.len(), MOST);
    for (index, symbol) in symbols.enumerate().filter(|(_, symbol)| symbol.st_type() == STT_FUNC) {
        let code = || {
            let SectionIndex(section) = symbols.symbol_section(endian, symbol, index).ok()??;
            let section = sections.section(SectionIndex(section)).ok()?.data(endian, cubin).ok()?;
            let (start, size) = (symbol.st_value(endian), symbol.st_size(endian));
            section.get(usize::try_from(start).ok()?..usize::try_from(start.checked_add(size)?).ok()?)
        };
        let (Some(code), Ok(name)) = (code(), symbol.name(endian, symbols.strings())) else { continue };
        bytes_left = bytes_left.checked_sub(code.len())?;
        let offsets: Vec<u64> = offsets(code).take(left).collect();
        left -= offsets.len();
        if !offsets.is_empty() {
            found.insert(name.into(), offsets);
        }
    }
    Some(found)
}

/// Returns the offsets of the barriers in code.
fn offsets(code: &[u8]) -> impl Iterator<Item = u64> {
    let (instructions, _) = code.as_chunks::<INSTRUCTION>();
    let is_barrier = |instruction: &[u8; INSTRUCTION]| {
        let word = u64::from(u16::from_le_bytes([instruction[0], instruction[1]]));
        word & OPERATION == BARRIER
    };
    (0_u64..).zip(instructions).filter(move |(_, code)| is_barrier(code)).map(|(index, _)| index * INSTRUCTION as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiled by nvcc 13.0 for an H200. The function `waits` has `BAR.SYNC.DEFER_BLOCKING 0x0` at 0xd0.
    const NVCC: &[u8] = include_bytes!("../../tests/cubins/nvcc.cubin");

    /// Compiled by ptxas 13.4 for an H200, with `BAR` in all forms.
    const FORMS: &[u8] = include_bytes!("../../tests/cubins/barriers.cubin");

    /// Check that a wait belongs to the barrier at or shortly before the instruction where it is reported.
    #[test]
    fn waits_are_at_the_barrier() {
        let barriers = Barriers::of(NVCC);
        let of = |offset| barriers.of_wait(b"_Z5waitsPf", offset);
        assert_eq!([0xc0, 0xd0, 0xe0, 0xf0].map(of), [None, Some(0xd0), Some(0xd0), Some(0xd0)]);
        assert_eq!([0x110, 0x120].map(of), [Some(0xd0), None], "out of reach");
        assert_eq!((barriers.of_wait(b"_Z7stridedPKfPfmi", 0xe0), barriers.of_wait(b"", 0xe0)), (None, None));
    }

    /// Check that the barriers are those that nvdisasm shows, whatever their operands are: constants or registers.
    #[test]
    fn all_forms_are_barriers() {
        let expected = [0x10, 0x60, 0x70, 0xa0, 0xc0, 0xe0, 0x160, 0x170];
        assert_eq!(find(FORMS).expect("a cubin")[&b"k"[..]], expected);
    }

    /// Check that a damaged cubin is an answer, never a panic: each byte of its headers is changed, and it is cut off
    /// everywhere.
    #[test]
    fn damaged_cubins_have_no_barriers() {
        let mut bytes = NVCC.to_vec();
        for at in (0..0x40).chain(bytes.len() - 0x1000..bytes.len()) {
            for value in [0, 0x7f, 0xff] {
                let saved = std::mem::replace(&mut bytes[at], value);
                Barriers::of(&bytes);
                bytes[at] = saved;
            }
        }
        for length in (0..bytes.len()).step_by(7) {
            Barriers::of(&bytes[..length]);
        }
    }
}
