//! What naming needs of an ELF file: where its bytes appear in memory, its build id, and which kinds of names it has.
//!
//! Only headers are read here, by offset and not by mapping: the file may be broken, or change while it is read.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
};

use object::{
    Endianness, ReadCache,
    elf::{ELFCOMPRESS_ZLIB, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PT_LOAD, PT_NOTE, SHT_NOBITS, SHT_SYMTAB},
    read::{
        ReadRef,
        elf::{CompressionHeader as _, FileHeader, ProgramHeader as _, SectionHeader as _},
    },
};

/// Far above what linkers make, far below what would take long to look through.
const MOST_HEADERS: u64 = 1 << 16;
/// The most bytes of notes and of section names.
const MOST_BYTES: u64 = 1 << 24;

/// The headers of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    segments: Vec<Segment>,
    pub(crate) build_id: Vec<u8>,
    /// It has all its symbols, not only those that other files may use.
    pub(crate) symbols: bool,
    /// It has lines and inlined functions.
    pub(crate) dwarf: bool,
    /// Another file has what was stripped from this one: its name and checksum.
    pub(crate) link: Option<(String, u32)>,
    /// Sections whose name begins with `.debug_`.
    pub(crate) debug: Vec<Section>,
}

/// A section of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) name: String,
    /// Of the bytes in the file; of the compressed ones without their header.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) compressed: Option<Compressed>,
}

/// How a section is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compressed {
    pub(crate) zlib: bool,
    /// The size that it says it has.
    pub(crate) size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

impl Headers {
    /// Reads them. `None` if the file is no ELF file, or broken.
    pub(crate) fn read(file: &File) -> Option<Self> {
        let cache = ReadCache::new(Positioned { file, at: 0 });
        parse::<FileHeader64<Endianness>, _>(&cache).or_else(|| parse::<FileHeader32<Endianness>, _>(&cache))
    }

    /// The virtual address of a byte of the file.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        let inside = |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|inside| inside < s.size);
        self.segments.iter().find(inside).map(|s| s.address.wrapping_add(offset - s.offset))
    }
}

fn parse<'data, H, R>(data: R) -> Option<Headers>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut headers = Headers::default();
    if u64::from(header.phnum(endian, data).ok()?) > MOST_HEADERS {
        return None;
    }
    for program in header.program_headers(endian, data).ok()? {
        if program.p_type(endian) == PT_LOAD {
            headers.segments.push(Segment {
                offset: program.p_offset(endian).into(),
                size: program.p_filesz(endian).into(),
                address: program.p_vaddr(endian).into(),
            });
        }
        if program.p_type(endian) == PT_NOTE
            && program.p_filesz(endian).into() <= MOST_BYTES
            && headers.build_id.is_empty()
            && let Ok(Some(mut notes)) = program.notes(endian, data)
        {
            while let Ok(Some(note)) = notes.next() {
                if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
                    headers.build_id = note.desc().to_vec();
                    break;
                }
            }
        }
    }
    // Section headers may be stripped or wrong; a file without them still has segments.
    read_sections(header, endian, data, &mut headers);
    Some(headers)
}

fn read_sections<'data, H, R>(header: &H, endian: Endianness, data: R, headers: &mut Headers) -> Option<()>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    if u64::from(header.shnum(endian, data).ok()?) > MOST_HEADERS {
        return None;
    }
    let sections = header.section_headers(endian, data).ok()?;
    let names = sections.get(usize::try_from(header.shstrndx(endian, data).ok()?).ok()?)?;
    let (names, size) = names.file_range(endian)?;
    let names = data.read_bytes_at(names, size.min(MOST_BYTES)).ok()?;
    for section in sections {
        let name = names.get(section.sh_name(endian) as usize..).unwrap_or_default();
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        let size: u64 = section.sh_size(endian).into();
        let there = section.sh_type(endian) != SHT_NOBITS && size > 0;
        headers.symbols |= section.sh_type(endian) == SHT_SYMTAB && there;
        match name {
            b".debug_info" => headers.dwarf |= there,
            b".gnu_debuglink" if size <= 4096 => headers.link = section.data(endian, data).ok().and_then(link),
            _ => {}
        }
        if name.starts_with(b".debug_") && there {
            let (offset, size, compressed) = match section.compression(endian, data).ok()? {
                None => (section.sh_offset(endian).into(), size, None),
                Some((header, offset, size)) => {
                    let zlib = header.ch_type(endian) == ELFCOMPRESS_ZLIB;
                    (offset, size, Some(Compressed { zlib, size: header.ch_size(endian).into() }))
                }
            };
            let name = String::from_utf8_lossy(name).into_owned();
            headers.debug.push(Section { name, offset, size, compressed });
        }
    }
    Some(())
}

/// A name, zeros up to a multiple of four, a CRC-32. The name is that of a file, without a directory.
fn link(section: &[u8]) -> Option<(String, u32)> {
    let length = section.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(&section[..length]).ok()?;
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return None;
    }
    let crc = section.get((length + 4) & !3..)?.first_chunk::<4>()?;
    Some((name.to_owned(), u32::from_le_bytes(*crc)))
}

/// A file read from a position of its own: its descriptor may be in use elsewhere.
struct Positioned<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Positioned<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.at, by),
            SeekFrom::End(by) => (self.file.metadata()?.len(), by),
        };
        self.at = base.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
