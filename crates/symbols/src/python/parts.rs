//! Finds the parts of a function that the compiler moved elsewhere and that no symbol names.
//!
//! What a profile says is seldom run, the compiler puts far away: for all we know most of the interpreter's loop. Full symbols
//! call such a part `.cold`; a stripped file has none, but its `.eh_frame_hdr` still lists where functions and parts begin. A
//! part is what the function jumps into the middle of, and what jumps back into the middle of the function:
//!
//! ```text
//!   loop:  ...                            part:  ...
//!          jmp  part+0x1aa  ─────────────────>   ...
//!          ...  <────────────────────────────    jmp  loop+0x116
//! ```
//!
//! A call, and a jump in place of a last call, goes to a function's beginning. Jumps are looked for at every byte; where those
//! bytes are no jump, hardly one in a thousand leads anywhere, and hardly ever both ways.

use std::ops::Range;

/// The code of a file: a section of it, and where its functions and their parts begin.
pub(super) struct Code<'data> {
    pub bytes: &'data [u8],
    pub address: u64,
    /// Sorted.
    pub starts: Vec<u64>,
}

impl Code<'_> {
    /// The parts of a function that lie outside of it.
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

    /// What lies around an address, up to where the next begins.
    fn around(&self, address: u64) -> Option<Range<u64>> {
        let next = self.starts.partition_point(|start| *start <= address);
        let end = self.address + self.bytes.len() as u64;
        (address < end).then_some(())?;
        Some(*self.starts.get(next.checked_sub(1)?)?..self.starts.get(next).map_or(end, |next| *next.min(&end)))
    }

    /// Where jumps in a range lead to: `jmp` and `jcc` with distances of 32 bits.
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

/// The table of `.eh_frame_hdr`, which lies at `address`: where functions and parts begin, sorted. It has the form that all
/// linkers give it (two words of 32 bits an entry, relative to the section), or is not read.
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

    /// `jmp` or `jcc` at one place of the text to another.
    fn jump(text: &mut [u8], opcode: &[u8], from: usize, to: i32) {
        text[from..from + opcode.len()].copy_from_slice(opcode);
        let end = from + opcode.len() + 4;
        text[end - 4..end].copy_from_slice(&(to - end as i32).to_le_bytes());
    }

    /// The picture above; and neither a jump in place of a call, nor one that none answers.
    #[test]
    fn the_picture() {
        let mut bytes = vec![0x90; 400];
        jump(&mut bytes, &[0x0f, 0x84], 110, 230);
        jump(&mut bytes, &[0xe9], 120, 300);
        jump(&mut bytes, &[0xe9], 130, 20);
        jump(&mut bytes, &[0xe9], 250, 140);
        jump(&mut bytes, &[0xe9], 310, 120);
        let code = Code { bytes: &bytes, address: 0x1000, starts: vec![0x1000, 0x1064, 0x10c8, 0x112c] };
        assert_eq!(code.parts(&(0x1064..0x10c8)), vec![0x10c8..0x112c]);
    }

    /// The table of a section, and one that is cut short.
    #[test]
    fn the_table() {
        let mut header = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 2, 0, 0, 0];
        for word in [-0x800_i32, 0, -0x100, 0] {
            header.extend(word.to_le_bytes());
        }
        assert_eq!(starts(&header, 0x2000), Some(vec![0x1800, 0x1f00]));
        assert_eq!(starts(&header[..20], 0x2000), None);
        assert_eq!(starts(&[], 0), None);
    }
}
