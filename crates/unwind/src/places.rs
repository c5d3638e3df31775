//! Finds a file's call frame information.
//!
//! Sections are only a hint: they may be stripped or wrong. Without them `.eh_frame` is found through the
//! `PT_GNU_EH_FRAME` segment.

use elf::{Bytes, Elf, Place};
use gimli::{BaseAddresses, EhFrameHdr, LittleEndian};

use crate::Error;

/// The bytes of the file that hold call frame information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameBytes {
    pub place: Place,
    /// The size is only an upper bound: a zero length ends the entries.
    pub zero_ends: bool,
}

/// `.eh_frame`
pub(crate) fn eh_frame<B: Bytes + ?Sized>(elf: &Elf, bytes: &B) -> Option<FrameBytes> {
    section(elf, ".eh_frame").or_else(|| through_hdr(elf, bytes))
}

/// `.debug_frame`
pub(crate) fn debug_frame(elf: &Elf) -> Option<FrameBytes> {
    section(elf, ".debug_frame")
}

/// Finds a section by name. Compressed ones count as absent.
fn section(elf: &Elf, name: &str) -> Option<FrameBytes> {
    let matches = |section: &&elf::Section| section.name == name && !section.is_compressed();
    let section = elf.sections.iter().find(matches).filter(|section| section.is_in_file())?;
    Some(FrameBytes { place: section.place, zero_ends: false })
}

/// Finds `.eh_frame` through the first field of `.eh_frame_hdr`. Its search table is not used: it repeats the entries.
fn through_hdr<B: Bytes + ?Sized>(elf: &Elf, bytes: &B) -> Option<FrameBytes> {
    let header = elf.eh_frame_hdr?;
    // Version, three encodings, then two encoded numbers of at most ten bytes.
    let start = elf::read(bytes, header.offset, header.size.min(24), ".eh_frame_hdr").ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    let address = EhFrameHdr::new(&start, LittleEndian).parse(&bases, 8).ok()?.eh_frame_ptr().direct().ok()?;
    let (offset, size) = elf.segments.offset_of_vaddr(address)?;
    Some(FrameBytes { place: Place { address, offset, size }, zero_ends: true })
}

/// Reads the bytes of a section; empty if there is no such section.
pub(crate) fn read<B: Bytes + ?Sized>(
    bytes: &B,
    name: &'static str,
    found: Option<FrameBytes>,
    limit: u64,
) -> Result<Vec<u8>, Error> {
    let Some(FrameBytes { place, zero_ends }) = found else { return Ok(Vec::new()) };
    // Without a section header the size is that of the rest of the segment, which can be anything.
    let size = if zero_ends { place.size.min(limit) } else { place.size };
    elf::Error::check_bytes(name, size, limit)?;
    Ok(elf::read(bytes, place.offset, size, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Check that our own executable has its segments and call frame information.
    #[test]
    fn reads_this_executable() {
        let file = File::open("/proc/self/exe").unwrap();
        let elf = Elf::read(&file).unwrap();
        assert!(elf.segments.executable().next().is_some());
        let place = eh_frame(&elf, &file).unwrap().place;
        assert_eq!(elf.segments.offset_of_vaddr(place.address).map(|(offset, _)| offset), Some(place.offset));
    }
}
