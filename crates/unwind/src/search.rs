//! Finds the call frame information of single functions, by the search table of `.eh_frame_hdr`.
//!
//! The table has one entry per function, sorted by address, so the information of a function is found without reading
//! the rest of the file.

use elf::{Bytes as FileBytes, Elf, Place};
use gimli::EhFrame;

use crate::builder::Builder;
use crate::frames::{Flavour, Frames, reader};
use crate::partial::Piece;
use crate::places::{self, FrameBytes};
use crate::program::{Bytes, Machine};
use crate::table::check_machine;
use crate::x86_64::X86_64;
use crate::{Error, Row, Stats};

/// The header's version, and the encodings that linkers use: the number of entries as 32 bits, then pairs of signed
/// 32-bit numbers relative to the header.
const VERSION: u8 = 1;
const UDATA4: u8 = 0x03;
const SDATA4_RELATIVE: u8 = 0x3b;
/// An entry: the address of a function, and of its information.
const ENTRY: u64 = 8;
/// The most bytes of one function's information, and the most rows of three functions.
const MAX_ENTRY_BYTES: u32 = 256 << 10;
const MAX_PIECE_ROWS: usize = 1 << 15;
const PAGE: u64 = 4096;

/// The functions of a file, compiled one at a time.
pub struct Functions<'a, B: ?Sized> {
    elf: &'a Elf,
    bytes: &'a B,
    header: Place,
    /// The offset of the first entry in the file.
    entries: u64,
    count: u64,
    /// The base of the rows' addresses: the page of the first function.
    pub base: u64,
}

impl<'a, B: FileBytes + ?Sized> Functions<'a, B> {
    /// Finds the search table. `None` if the file has none, or has information that is not in it: then only
    /// [`crate::Table`] can read it.
    pub fn of(elf: &'a Elf, bytes: &'a B) -> Result<Option<Self>, Error> {
        check_machine(elf)?;
        let (Some(header), None) = (elf.eh_frame_hdr, places::debug_frame(elf)) else { return Ok(None) };
        let start = elf::read(bytes, header.offset, header.size.min(24), ".eh_frame_hdr")?;
        let [VERSION, pointer, UDATA4, SDATA4_RELATIVE, ..] = start[..] else { return Ok(None) };
        // The pointer to .eh_frame is not used; it has 4 or 8 bytes.
        let count_at = match pointer & 15 {
            0x03 | 0x0b => 8,
            0x04 | 0x0c => 12,
            _ => return Ok(None),
        };
        let Some(count) = start.get(count_at..count_at + 4) else { return Ok(None) };
        let count = count.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let entries = header.offset + count_at as u64 + 4;
        if count == 0 || count * ENTRY > header.size.saturating_sub(count_at as u64 + 4) {
            return Ok(None);
        }
        let mut functions = Self { elf, bytes, header, entries, count, base: 0 };
        let Some((first, _)) = functions.entry(0) else { return Ok(None) };
        functions.base = first & !(PAGE - 1);
        Ok(Some(functions))
    }

    /// Compiles the function at an address, together with the gap behind it. `None` if the address is below the first
    /// function, or out of reach of rows. Code that cannot be compiled is a piece with one row.
    pub fn at(&self, address: u64) -> Option<Piece> {
        let start = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let end = start.checked_add(1)?;
        Some(self.search(address).unwrap_or_else(|| Piece { start, end, rows: vec![Row::unsupported(start)] }))
    }

    fn search(&self, address: u64) -> Option<Piece> {
        let wanted = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.0 <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let end = match self.entry(low) {
            Some((next, _)) => u32::try_from(next.checked_sub(self.base)?).ok()?,
            None => u32::MAX,
        };
        let Some(index) = low.checked_sub(1) else {
            return Some(Piece { start: 0, end, rows: vec![Row::no_rule(0)] });
        };
        let start = u32::try_from(self.entry(index)?.0.checked_sub(self.base)?).ok()?;
        // Of an unsorted table.
        if !(start..end).contains(&wanted) {
            return None;
        }
        let rows = self.rows::<X86_64>(index).unwrap_or_else(|_| vec![Row::unsupported(start)]);
        Some(Piece { start, end, rows }.clipped())
    }

    /// Returns the rows of a function and of its neighbours, which some corrections need.
    fn rows<M: Machine>(&self, index: u64) -> Result<Vec<Row>, Error> {
        let mut rows = Builder::new(self.base, MAX_PIECE_ROWS, self.elf.entry, Stats::default());
        let last = self.base.saturating_add(u32::MAX.into());
        // The table may not be sorted. Rows must be.
        let mut before = None;
        for index in index.saturating_sub(1)..(index + 2).min(self.count) {
            let Some((start, information)) = self.entry(index) else { break };
            let next = self.entry(index + 1).map_or(last, |(next, _)| next.min(last));
            if start < self.base || next <= start || before.is_some_and(|before| start < before) {
                continue;
            }
            self.compile::<M>(start, information, next, &mut rows)?;
            before = Some(next);
        }
        rows.finish()?;
        let code = |pc: u32, length: u32| {
            let (offset, _) = self.elf.segments.offset_of_vaddr(self.base + u64::from(pc))?;
            elf::read(self.bytes, offset, length.into(), "code").ok()
        };
        M::correct(&mut rows.rows, &code);
        Ok(rows.into_parts().0)
    }

    fn compile<M: Machine>(&self, start: u64, information: u64, next: u64, rows: &mut Builder) -> Result<(), Error> {
        let one = |rows: &mut Builder, end: u64, row: fn(u32) -> Row| {
            rows.begin(start)?;
            rows.end(end);
            rows.push(start, |pc| (row(pc), None))
        };
        let Some((entries, address)) = self.information(information) else { return one(rows, next, Row::unsupported) };
        let section: EhFrame<Bytes<'_>> = reader(&entries).into();
        let place = FrameBytes { place: Place { address, ..Place::default() }, zero_ends: false };
        // One function and its CIE.
        let frames = Frames::new::<M>(section, Flavour::EhFrame, &entries, &place, self.elf, 16, &mut rows.stats)?;
        match frames.functions.first() {
            Some(function) if function.start == start => {
                let end = function.end.min(next);
                // A program's first function has no caller, whatever its rules say.
                if self.elf.program && (start..end).contains(&self.elf.entry) {
                    return one(rows, end, Row::end);
                }
                frames.compile::<M>(function, end, rows)
            }
            _ => one(rows, next, Row::unsupported),
        }
    }

    /// Reads a function's CIE and FDE. Returns them as a section of their own, and its address.
    fn information(&self, address: u64) -> Option<(Vec<u8>, u64)> {
        let mut function = self.sized(address)?;
        let distance = u32::from_le_bytes(function.get(4..8)?.try_into().ok()?);
        let mut section = self.sized(address.checked_add(4)?.checked_sub(distance.into())?)?;
        let length = section.len() as u32;
        // The distance from the FDE to its CIE.
        function[4..8].copy_from_slice(&(length + 4).to_le_bytes());
        section.append(&mut function);
        Some((section, address.wrapping_sub(length.into())))
    }

    /// Reads an entry of `.eh_frame`: its length, and what follows.
    fn sized(&self, address: u64) -> Option<Vec<u8>> {
        let (offset, _) = self.elf.segments.offset_of_vaddr(address)?;
        let length = elf::read(self.bytes, offset, 4, ".eh_frame").ok()?;
        let length = u32::from_le_bytes(length.try_into().ok()?);
        (4..MAX_ENTRY_BYTES).contains(&length).then_some(())?;
        elf::read(self.bytes, offset, 4 + u64::from(length), ".eh_frame").ok()
    }

    /// Returns an entry: the addresses of a function and of its information.
    fn entry(&self, index: u64) -> Option<(u64, u64)> {
        if index >= self.count {
            return None;
        }
        let bytes = elf::read(self.bytes, self.entries + index * ENTRY, ENTRY, ".eh_frame_hdr").ok()?;
        let number = |at: usize| Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let address = |distance: i32| self.header.address.checked_add_signed(distance.into());
        Some((address(number(0)?)?, address(number(4)?)?))
    }
}
