//! The encodings of values in a page.
//!
//! Numbers are differences (`DELTA_BINARY_PACKED`): times, ids and constant columns take a few bits each. Texts are indexes
//! into a dictionary, and these and the presence of values are runs or packed bits (`RLE`).

use super::thrift::{varint, zigzag};

/// Differences in a block, which has its own smallest difference.
const BLOCK: usize = 128;
/// Differences that share a width.
const PART: usize = 32;

/// Appends numbers as `DELTA_BINARY_PACKED`.
pub(super) fn deltas(out: &mut Vec<u8>, values: &[i64]) {
    for header in [BLOCK, BLOCK / PART, values.len()] {
        varint(out, header as u64);
    }
    zigzag(out, values.first().copied().unwrap_or(0));
    let mut block = [0_i64; BLOCK];
    for from in (1..values.len()).step_by(BLOCK) {
        let count = BLOCK.min(values.len() - from);
        for (at, delta) in block[..count].iter_mut().enumerate() {
            *delta = values[from + at].wrapping_sub(values[from + at - 1]);
        }
        let least = block[..count].iter().copied().min().unwrap_or(0);
        // The rest of the last part is padding.
        block[count..].fill(least);
        zigzag(out, least);
        let parts = block.chunks(PART).map(|part| {
            let widest = part.iter().map(|delta| delta.wrapping_sub(least) as u64).max().unwrap_or(0);
            64 - widest.leading_zeros()
        });
        let mut widths = [0_u32; BLOCK / PART];
        widths.iter_mut().zip(parts).for_each(|(width, part)| *width = part);
        out.extend(widths.map(|width| width as u8));
        for (part, width) in block[..count.next_multiple_of(PART)].chunks(PART).zip(widths) {
            pack(out, width, part.iter().map(|delta| delta.wrapping_sub(least) as u64));
        }
    }
}

/// Appends numbers of at most `width` bits as runs of equal ones, or packed where they differ.
pub(super) fn runs(out: &mut Vec<u8>, width: u32, values: &[u32]) {
    let mut at = 0;
    while at < values.len() {
        let run = values[at..].iter().take_while(|value| **value == values[at]).count();
        if run >= 8 || at + run == values.len() {
            varint(out, (run as u64) << 1);
            out.extend_from_slice(&values[at].to_le_bytes()[..width.div_ceil(8) as usize]);
            at += run;
            continue;
        }
        let from = at;
        while at < values.len() {
            let next = &values[at..values.len().min(at + 8)];
            if at > from && next.len() == 8 && next.iter().all(|value| *value == next[0]) {
                break;
            }
            at += next.len();
        }
        let groups = (at - from).div_ceil(8);
        varint(out, (groups as u64) << 1 | 1);
        let padding = std::iter::repeat_n(0, groups * 8 - (at - from));
        pack(out, width, values[from..at].iter().copied().chain(padding).map(u64::from));
    }
}

/// Appends numbers of `width` bits each, the lowest bit first; as many as fill whole bytes.
fn pack(out: &mut Vec<u8>, width: u32, values: impl Iterator<Item = u64>) {
    let (mut bits, mut count) = (0_u128, 0);
    for value in values {
        bits |= u128::from(value) << count;
        count += width;
        while count >= 64 {
            out.extend_from_slice(&(bits as u64).to_le_bytes());
            bits >>= 64;
            count -= 64;
        }
    }
    out.extend_from_slice(&bits.to_le_bytes()[..count.div_ceil(8) as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the examples of Parquet's specification of its encodings.
    #[test]
    fn examples_of_the_specification() {
        let mut out = Vec::new();
        pack(&mut out, 3, 0..8);
        assert_eq!(out, [0b1000_1000, 0b1100_0110, 0b1111_1010]);

        // 1, 2, 3, 4, 5: a block of 128 in 4 parts, 5 values, the first is 1; all differences are 1, so no bits follow.
        let mut out = Vec::new();
        deltas(&mut out, &[1, 2, 3, 4, 5]);
        assert_eq!(out, [0x80, 1, 4, 5, 2, 2, 0, 0, 0, 0]);

        // 7, 5, 3, 1, 2, 3, 4, 5: differences -2, -2, -2, 1, 1, 1, 1; without the least one 0, 0, 0, 3, 3, 3, 3.
        let mut out = Vec::new();
        deltas(&mut out, &[7, 5, 3, 1, 2, 3, 4, 5]);
        assert_eq!(out, [0x80, 1, 4, 8, 14, 3, 2, 0, 0, 0, 0b1100_0000, 0b0011_1111, 0, 0, 0, 0, 0, 0]);
    }

    /// Check runs, packed numbers between them, and what is left at the end.
    #[test]
    fn runs_and_packed_numbers() {
        let encoded = |width, values: &[u32]| {
            let mut out = Vec::new();
            runs(&mut out, width, values);
            out
        };
        assert_eq!(encoded(1, &[1; 300]), [0b1101_1000, 0b100, 1]);
        assert_eq!(encoded(9, &[300; 8]), [16, 0x2c, 1]);
        assert!(encoded(1, &[]).is_empty());
        assert_eq!(encoded(3, &[0, 1, 2, 3, 4, 5, 6, 7]), [3, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        let mixed = [[0, 1, 0, 1, 0, 1, 0, 1].as_slice(), &[1; 9], &[0, 0]].concat();
        assert_eq!(encoded(1, &mixed), [3, 0b1010_1010, 18, 1, 4, 0]);
        assert_eq!(encoded(1, &[0, 1, 1]), [3, 0b110]);
    }
}
