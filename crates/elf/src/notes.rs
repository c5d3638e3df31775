//! Notes, which contain the build id.

use object::elf::NT_GNU_BUILD_ID;

use crate::{Bytes, Place, bytes::read};

/// The maximum number of note segments to search.
pub(crate) const MAX_SEGMENTS: usize = 16;
/// The maximum bytes of a note segment to search. Linkers put the build id among the first notes.
const MAX_BYTES: u64 = 1 << 16;
const MAX_BUILD_ID: usize = 64;

/// Finds the build id in a note segment.
pub(crate) fn build_id<B: Bytes + ?Sized>(bytes: &B, place: Place, align: u64) -> Option<Vec<u8>> {
    let notes = read(bytes, place.offset, place.size.min(MAX_BYTES), "notes").ok()?;
    find(&notes, if align == 8 { 8 } else { 4 })
}

/// Parses notes: the sizes of name and description, the type, then both, each padded.
fn find(mut notes: &[u8], align: usize) -> Option<Vec<u8>> {
    loop {
        let word = |at: usize| notes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let (name_size, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let start = 12_usize.checked_add(name_size)?.checked_next_multiple_of(align)?;
        let end = start.checked_add(size)?;
        let name = notes.get(12..)?.get(..name_size)?;
        let description = notes.get(start..end)?;
        if name == b"GNU\0" && kind == NT_GNU_BUILD_ID.0 && (1..=MAX_BUILD_ID).contains(&size) {
            return Some(description.to_vec());
        }
        notes = notes.get(end.checked_next_multiple_of(align)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [name.len() as u32, description.len() as u32, kind].map(u32::to_le_bytes).concat();
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(description);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Check that the build id is found behind other notes, and that malformed notes end the search.
    #[test]
    fn build_ids_are_found() {
        let others = [note(b"GNU\0", 5, &[1; 17]), note(b"stapsdt\0", 3, &[2; 3])].concat();
        let build_id = note(b"GNU\0", 3, &[7; 20]);
        assert_eq!(find(&[others.clone(), build_id.clone()].concat(), 4), Some(vec![7; 20]));
        assert_eq!(find(&others, 4), None);
        assert_eq!(find(&note(b"GNU\0", 3, &[7; 65]), 4), None);
        for length in 0..build_id.len() {
            assert_eq!(find(&build_id[..length], 4), None);
        }
        let mut endless = build_id.clone();
        endless[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(find(&endless, 4), None);
    }
}
