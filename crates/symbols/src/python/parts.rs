//! Finds the parts of a function that the compiler moved elsewhere and that have no symbol.
//!
//! The compiler moves code that is rarely run according to a profile far away: possibly most of the interpreter's loop.
//! Full symbols call such a part `.cold`; a stripped file has none, but its `.eh_frame_hdr` still lists the start of
//! functions and parts. A part is code that the function jumps into the middle of, and that jumps back into the middle
//! of the function:
//!
//! ```text
//!   loop:  ...                            part:  ...
//!          jmp  part+0x1aa  ─────────────────>   ...
//!          ...  <────────────────────────────    jmp  loop+0x116
//! ```
//!
//! A call, and a tail call's jump, goes to the start of a function. Jumps are searched at every byte; of the bytes that
//! are not a jump, hardly one in a thousand seems to lead to a valid address, and hardly ever in both directions.
//!
//! Debian's 3.14 is stripped, and has most of its loop in such a part.

use std::ops::Range;

/// The code of a file: a section, and the start addresses of its functions and parts.
pub(super) struct Code<'data> {
    pub bytes: &'data [u8],
    pub address: u64,
    /// Sorted.
    pub starts: Vec<u64>,
}

impl Code<'_> {
    /// Returns the parts of a function that are outside of it.
    pub fn parts(&self, function: &Range<u64>) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = self
            .jumps(function)
            .filter(|target| !function.contains(target))
            .filter_map(|target| self.around(target).filter(|part| part.start != target))
            .collect();
        found.sort_by_key(|part| part.start);
        found.dedup();
        found.retain(|part| self.jumps(part).any(|target| target != function.start && function.contains(&target)));
        found
    }

    /// Returns the range around an address, up to the next start.
    fn around(&self, address: u64) -> Option<Range<u64>> {
        let next = self.starts.partition_point(|start| *start <= address);
        let end = self.address + self.bytes.len() as u64;
        (address < end).then_some(())?;
        Some(*self.starts.get(next.checked_sub(1)?)?..self.starts.get(next).map_or(end, |next| *next.min(&end)))
    }

    /// Returns the targets of jumps in a range: `jmp` and `jcc` with 32-bit offsets.
    fn jumps(&self, range: &Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let inside = |address: u64| usize::try_from(address.saturating_sub(self.address)).unwrap_or(usize::MAX);
        let (first, last) = (inside(range.start), inside(range.end).min(self.bytes.len()));
        (first..last).filter_map(|at| {
            let length = match *self.bytes.get(at..at + 2)? {
                [0xe9, _] => 1,
                [0x0f, condition] if condition & 0xf0 == 0x80 => 2,
                _ => return None,
            };
            let end = at + length + 4;
            let distance = i32::from_le_bytes(self.bytes.get(end - 4..end)?.try_into().ok()?);
            Some(self.address.wrapping_add(end as u64).wrapping_add_signed(distance.into()))
        })
    }
}

/// Parses the table of `.eh_frame_hdr`, which is at `address`: the sorted start addresses of functions and parts. Only
/// the format that all linkers use is supported (two 32-bit words per entry, relative to the section).
pub(super) fn starts(header: &[u8], address: u64) -> Option<Vec<u64>> {
    // version, encoding of the pointer to .eh_frame, of the count, of the table; pointer; count
    let ([1, 0x1b, 0x03, 0x3b], rest) = header.split_first_chunk()? else { return None };
    let (count, table) = rest.get(4..)?.split_first_chunk()?;
    let entries = table.as_chunks::<8>().0.get(..u32::from_le_bytes(*count) as usize)?;
    let start = |entry: &[u8; 8]| {
        let distance = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        address.wrapping_add_signed(distance.into())
    };
    Some(entries.iter().map(start).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a `jmp` or `jcc` from one offset of the text to another.
    fn jump(text: &mut [u8], opcode: &[u8], from: usize, to: i32) {
        text[from..from + opcode.len()].copy_from_slice(opcode);
        let end = from + opcode.len() + 4;
        text[end - 4..end].copy_from_slice(&(to - end as i32).to_le_bytes());
    }

    /// The example above; neither a tail call nor a jump without a jump back is a part.
    #[test]
    fn parts_jump_both_ways() {
        let mut bytes = vec![0x90; 400];
        jump(&mut bytes, &[0x0f, 0x84], 110, 230);
        jump(&mut bytes, &[0xe9], 120, 300);
        jump(&mut bytes, &[0xe9], 130, 20);
        jump(&mut bytes, &[0xe9], 250, 140);
        jump(&mut bytes, &[0xe9], 310, 120);
        let code = Code { bytes: &bytes, address: 0x1000, starts: vec![0x1000, 0x1064, 0x10c8, 0x112c] };
        assert_eq!(code.parts(&(0x1064..0x10c8)), vec![0x10c8..0x112c]);
    }

    /// The table of a section, and a truncated one.
    #[test]
    fn the_table_is_parsed() {
        let mut header = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 2, 0, 0, 0];
        for word in [-0x800_i32, 0, -0x100, 0] {
            header.extend(word.to_le_bytes());
        }
        assert_eq!(starts(&header, 0x2000), Some(vec![0x1800, 0x1f00]));
        assert_eq!(starts(&header[..20], 0x2000), None);
        assert_eq!(starts(&[], 0), None);
    }
}
