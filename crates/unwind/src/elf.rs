//! What the loader needs of an ELF file: segments, build id, and where the call frame information lies.
//!
//! Only headers are kept, so an [`Elf`] is small and outlives the file. Program headers are what the kernel believes;
//! section headers may be stripped or wrong, so they are a hint: without them `.eh_frame` is found through the
//! `PT_GNU_EH_FRAME` segment.

use std::fs::File;
use std::ops::Range;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian};
use object::elf::{
    EM_X86_64, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE, ProgramHeader64, SHF_COMPRESSED,
};
use object::endian::LittleEndian as Le;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::read::{ReadCache, ReadRef};

use crate::Error;

const PAGE: u64 = 4096;
/// Far above what linkers make, far below what would take long to look through.
const MAX_HEADERS: u64 = 1 << 16;
/// Every function is looked for in every segment: few enough for that. Linkers make two to ten.
const MAX_SEGMENTS: u64 = 64;
const MAX_NOTES: u64 = 1 << 20;
const MAX_NAMES: u64 = 1 << 24;

/// The machine a file's code is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// AMD64, Intel 64.
    X86_64,
}

/// A `PT_LOAD` segment: `file_size` bytes from `offset` appear at `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Virtual address in the file.
    pub address: u64,
    /// Where its bytes lie in the file.
    pub offset: u64,
    /// How many bytes lie in the file.
    pub file_size: u64,
    /// How many bytes it takes in memory.
    pub memory_size: u64,
    /// Whether code may run there.
    pub executable: bool,
}

impl Segment {
    /// The virtual addresses it takes in memory.
    pub fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.memory_size)
    }

    /// The part of the file that a mapping of it shows: whole pages.
    fn mapped_offsets(&self) -> Range<u64> {
        let end = self.offset.saturating_add(self.file_size);
        self.offset & !(PAGE - 1)..end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
    }

    fn address_of(&self, offset: u64) -> u64 {
        self.address.wrapping_sub(self.offset).wrapping_add(offset)
    }
}

/// Bytes of the file that hold call frame information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameBytes {
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    /// The size is only a bound: a zero length ends the entries.
    pub zero_ends: bool,
}

/// The headers of an executable or a shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    arch: Arch,
    segments: Vec<Segment>,
    build_id: Option<Vec<u8>>,
    /// Where the kernel starts it.
    pub(crate) entry: u64,
    pub(crate) eh_frame: Option<FrameBytes>,
    pub(crate) debug_frame: Option<FrameBytes>,
}

impl Elf {
    /// Reads the headers of a file, not the rest of it.
    pub fn from_file(file: &File) -> Result<Elf, Error> {
        Elf::parse(&ReadCache::new(file))
    }

    /// Reads the headers from bytes, or from anything else the `object` crate can read.
    pub fn parse<'data, R: ReadRef<'data>>(data: R) -> Result<Elf, Error> {
        let header = FileHeader64::<Le>::parse(data)?;
        header.endian()?;
        if header.e_machine(Le) != EM_X86_64 {
            return Err(Error::Machine(header.e_machine(Le).0));
        }
        too_many("program headers", header.phnum(Le, data)?.into(), MAX_HEADERS)?;
        let headers = header.program_headers(Le, data)?;
        let segments: Vec<Segment> =
            headers.iter().filter(|header| header.p_type(Le) == PT_LOAD).map(segment).collect();
        if segments.is_empty() {
            return Err(Error::NotLoadable);
        }
        too_many("segments", segments.len() as u64, MAX_SEGMENTS)?;
        let (eh_frame, debug_frame) = sections(header, data).unwrap_or_default();
        Ok(Elf {
            arch: Arch::X86_64,
            build_id: build_id(headers, data),
            entry: header.e_entry(Le),
            eh_frame: eh_frame.or_else(|| through_hdr(headers, &segments, data)),
            debug_frame,
            segments,
        })
    }

    /// The machine the code is for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The segments that are loaded, in the order of the program headers.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The GNU build id, usually 20 bytes.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// The virtual address that a byte of the file gets. Where segments share a byte, executable ones go first.
    pub fn vaddr_of_offset(&self, offset: u64) -> Option<u64> {
        let holds =
            |segment: &&Segment| offset.checked_sub(segment.offset).is_some_and(|inside| inside < segment.file_size);
        self.executable_first().find(holds).map(|segment| segment.address_of(offset))
    }

    /// The byte of the file that a virtual address comes from.
    pub fn offset_of_vaddr(&self, address: u64) -> Option<u64> {
        offset_of(&self.segments, address).map(|(offset, _)| offset)
    }

    /// What to add to the file's virtual addresses to get those of a process that maps the file executable, with `offset`
    /// in the file at `start`: the columns of `/proc/PID/maps`.
    ///
    /// Mappings are whole pages, so a mapping starts up to a page before its segment, with the tail of the one before:
    /// that is why this is not `start - vaddr_of_offset(offset)`.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let exact = |segment: &&Segment| segment.mapped_offsets().start == offset;
        let within = |segment: &&Segment| segment.mapped_offsets().contains(&offset);
        let executable = || self.segments.iter().filter(|segment| segment.executable);
        let segment = executable().find(exact).or_else(|| executable().find(within))?;
        Some(start.wrapping_sub(segment.address_of(offset)))
    }

    /// The executable segment that holds all of a range.
    pub(crate) fn executable_segment(&self, start: u64, end: u64) -> Option<&Segment> {
        let holds = |addresses: Range<u64>| addresses.start <= start && end <= addresses.end;
        self.segments.iter().find(|segment| segment.executable && holds(segment.addresses()))
    }

    fn executable_first(&self) -> impl Iterator<Item = &Segment> {
        let with = |executable| self.segments.iter().filter(move |segment| segment.executable == executable);
        with(true).chain(with(false))
    }
}

fn too_many(what: &'static str, count: u64, limit: u64) -> Result<(), Error> {
    if count > limit { Err(Error::TooMany { what, limit }) } else { Ok(()) }
}

fn segment(header: &ProgramHeader64<Le>) -> Segment {
    Segment {
        address: header.p_vaddr(Le),
        offset: header.p_offset(Le),
        file_size: header.p_filesz(Le),
        memory_size: header.p_memsz(Le),
        executable: header.p_flags(Le).contains(PF_X),
    }
}

/// The file offset behind an address, and how many bytes of its segment lie in the file from there.
fn offset_of(segments: &[Segment], address: u64) -> Option<(u64, u64)> {
    segments.iter().find_map(|segment| {
        let inside = address.checked_sub(segment.address).filter(|&inside| inside < segment.file_size)?;
        Some((segment.offset.checked_add(inside)?, segment.file_size - inside))
    })
}

/// `.eh_frame` and `.debug_frame` by name. Compressed ones count as absent.
fn sections<'data, R: ReadRef<'data>>(
    header: &FileHeader64<Le>,
    data: R,
) -> Option<(Option<FrameBytes>, Option<FrameBytes>)> {
    if u64::from(header.shnum(Le, data).ok()?) > MAX_HEADERS {
        return None;
    }
    let sections = header.section_headers(Le, data).ok()?;
    let names = sections.get(header.shstrndx(Le, data).ok()? as usize)?;
    let (offset, size) = names.file_range(Le).filter(|&(_, size)| size <= MAX_NAMES)?;
    let names = data.read_bytes_at(offset, size).ok()?;
    let find = |name: &[u8]| {
        let section = sections.iter().find(|section| {
            names.get(section.sh_name(Le) as usize..).is_some_and(|rest| rest.starts_with(name))
                && !section.sh_flags(Le).contains(SHF_COMPRESSED)
        })?;
        let (offset, size) = section.file_range(Le).filter(|&(_, size)| size > 0)?;
        Some(FrameBytes { address: section.sh_addr(Le), offset, size, zero_ends: false })
    };
    Some((find(b".eh_frame\0"), find(b".debug_frame\0")))
}

/// `.eh_frame` through the first field of `.eh_frame_hdr`. Its search table is not used: it repeats what the entries say.
fn through_hdr<'data, R: ReadRef<'data>>(
    headers: &[ProgramHeader64<Le>],
    segments: &[Segment],
    data: R,
) -> Option<FrameBytes> {
    let header = headers.iter().find(|header| header.p_type(Le) == PT_GNU_EH_FRAME)?;
    // Version, three encodings, then two encoded numbers of at most ten bytes.
    let bytes = data.read_bytes_at(header.p_offset(Le), header.p_filesz(Le).min(24)).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr(Le));
    let address = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?.eh_frame_ptr().direct().ok()?;
    let (offset, size) = offset_of(segments, address)?;
    Some(FrameBytes { address, offset, size, zero_ends: true })
}

fn build_id<'data, R: ReadRef<'data>>(headers: &[ProgramHeader64<Le>], data: R) -> Option<Vec<u8>> {
    let notes = headers.iter().filter(|header| header.p_type(Le) == PT_NOTE && header.p_filesz(Le) <= MAX_NOTES);
    for header in notes.take(16) {
        let Ok(Some(mut notes)) = header.notes(Le, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"GNU" && note.n_type(Le) == NT_GNU_BUILD_ID && note.desc().len() <= 64 {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As lld lays files out: segments follow each other in the file within one page, and get pages apart in memory.
    ///
    /// ```text
    /// file    0        0x1234          0x2500     0x2600
    ///         [ r      )[ x            )[ rw      )
    /// memory  0        0x2234          0x4500
    /// ```
    fn packed() -> Elf {
        let segment = |address, offset, file_size, executable| Segment {
            address,
            offset,
            file_size,
            memory_size: file_size,
            executable,
        };
        Elf {
            arch: Arch::X86_64,
            segments: vec![
                segment(0, 0, 0x1234, false),
                segment(0x2234, 0x1234, 0x12cc, true),
                segment(0x4500, 0x2500, 0x100, false),
            ],
            build_id: None,
            entry: 0,
            eh_frame: None,
            debug_frame: None,
        }
    }

    /// Check that offsets become addresses segment by segment, and back.
    #[test]
    fn offsets_and_addresses() {
        let elf = packed();
        for (offset, address) in [(0, 0), (0x1233, 0x1233), (0x1234, 0x2234), (0x24ff, 0x34ff), (0x2500, 0x4500)] {
            assert_eq!(elf.vaddr_of_offset(offset), Some(address));
            assert_eq!(elf.offset_of_vaddr(address), Some(offset));
        }
        assert_eq!(elf.vaddr_of_offset(0x2600), None);
        assert_eq!(elf.offset_of_vaddr(0x2000), None);
    }

    /// Check that a mapping's bias comes from the executable segment, even where its first page begins in another one.
    #[test]
    fn bias_of_an_executable_mapping() {
        let elf = packed();
        let bias = 0x7f00_0000_0000;
        assert_eq!(elf.bias(bias + 0x2000, 0x1000), Some(bias));
        assert_eq!(elf.bias(bias + 0x3000, 0x2000), Some(bias), "a mapping split in two by mprotect");
        assert_eq!(elf.bias(bias, 0), None, "the first page is not executable");
    }

    /// Check that our own executable has its segments and a place for its rules.
    #[test]
    fn reads_this_executable() {
        let elf = Elf::from_file(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(elf.segments().iter().any(|segment| segment.executable));
        let frames = elf.eh_frame.unwrap();
        assert_eq!(elf.offset_of_vaddr(frames.address), Some(frames.offset));
    }
}
