//! The headers of a file.

use object::{
    LittleEndian as Le,
    elf::{
        ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFMAG, ET_EXEC, FileHeader32, FileHeader64, PF_X, PN_XNUM,
        PT_GNU_EH_FRAME, PT_INTERP, PT_LOAD, PT_NOTE, SHN_XINDEX,
    },
    pod::{Pod, slice_from_bytes},
    read::elf::{FileHeader, ProgramHeader as _, SectionHeader as _},
};

use crate::{
    Bytes, Error, Place, Section, Segment, Segments,
    bytes::{fill, read},
    notes,
};

/// Linkers create ten to twenty.
const MAX_PROGRAM_HEADERS: u64 = 4096;
/// Every function is searched in every segment. Linkers create two to ten.
const MAX_SEGMENTS: u64 = 64;
/// Linkers create thirty to sixty.
const MAX_SECTIONS: u64 = 4096;
/// All section names together.
const MAX_SECTION_NAMES: u64 = 1 << 20;
/// One section name: no relevant one is longer.
const MAX_SECTION_NAME: usize = 64;

/// The headers of an executable, a shared library or a debug file.
///
/// Program headers are what the kernel uses. Section headers may be missing or wrong: then there are no sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// The machine of the code, `EM_*`.
    pub machine: u16,
    /// Words have 64 bits, otherwise 32.
    pub wide: bool,
    /// The address of the entry point, or 0.
    pub entry: u64,
    /// It is certainly a program, and not a library that happens to have an entry point.
    pub program: bool,
    /// The loaded segments.
    pub segments: Segments,
    /// The GNU build id, usually 20 bytes; empty if there is none.
    pub build_id: Vec<u8>,
    /// `PT_GNU_EH_FRAME`
    pub eh_frame_hdr: Option<Place>,
    /// All sections, in the order of the section headers: the first one is the null section.
    pub sections: Vec<Section>,
}

impl Elf {
    /// Reads the headers, and nothing else of the file.
    pub fn read<B: Bytes + ?Sized>(bytes: &B) -> Result<Elf, Error> {
        let mut ident = [0; 6];
        if fill(bytes, &mut ident, 0) < ident.len() || ident[..4] != ELFMAG || ident[5] != ELFDATA2LSB.0 {
            return Err(Error::NotElf);
        }
        match ident[4] {
            class if class == ELFCLASS64.0 => parse::<FileHeader64<Le>, B>(bytes, true),
            class if class == ELFCLASS32.0 => parse::<FileHeader32<Le>, B>(bytes, false),
            _ => Err(Error::NotElf),
        }
    }

    /// Returns the first section with this name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }
}

fn parse<H, B>(bytes: &B, wide: bool) -> Result<Elf, Error>
where
    H: FileHeader<Endian = Le>,
    B: Bytes + ?Sized,
{
    let header: H = *entries::<H, B>(bytes, 0, 1, "ELF header")?.first().ok_or(Error::NotElf)?;
    let mut elf = Elf {
        machine: header.e_machine(Le).0,
        wide,
        entry: header.e_entry(Le).into(),
        program: header.e_type(Le) == ET_EXEC,
        ..Elf::default()
    };
    // Numbers too large for the header are in the first section header.
    let sections_at: u64 = header.e_shoff(Le).into();
    let first = || entries::<H::SectionHeader, B>(bytes, sections_at, 1, "section headers").ok()?.first().copied();
    let count = match header.e_phnum(Le) {
        PN_XNUM => first().map_or(0, |first| first.sh_info(Le)).into(),
        count => u64::from(count),
    };
    Error::check_entries("program header table", count, MAX_PROGRAM_HEADERS)?;
    let mut notes = 0;
    for program in entries::<H::ProgramHeader, B>(bytes, header.e_phoff(Le).into(), count, "program headers")? {
        let place = Place {
            address: program.p_vaddr(Le).into(),
            offset: program.p_offset(Le).into(),
            size: program.p_filesz(Le).into(),
        };
        match program.p_type(Le) {
            PT_LOAD => elf.segments.0.push(Segment {
                address: place.address,
                offset: place.offset,
                file_size: place.size,
                memory_size: program.p_memsz(Le).into(),
                executable: program.p_flags(Le).contains(PF_X),
            }),
            PT_NOTE if elf.build_id.is_empty() && notes < notes::MAX_SEGMENTS => {
                notes += 1;
                let found = notes::build_id(bytes, place, program.p_align(Le).into());
                elf.build_id = found.unwrap_or_default();
            }
            PT_INTERP => elf.program = true,
            PT_GNU_EH_FRAME if elf.eh_frame_hdr.is_none() => elf.eh_frame_hdr = Some(place),
            _ => {}
        }
    }
    Error::check_entries("table of segments", elf.segments.0.len() as u64, MAX_SEGMENTS)?;
    let count = match header.e_shnum(Le) {
        0 if sections_at > 0 => first().map_or(0, |first| first.sh_size(Le).into()),
        count => u64::from(count),
    };
    let names = match header.e_shstrndx(Le) {
        SHN_XINDEX => first().map_or(0, |first| first.sh_link(Le)),
        index => u32::from(index.0),
    };
    elf.sections = sections::<H, B>(bytes, sections_at, count, names).unwrap_or_default();
    Ok(elf)
}

fn sections<H, B>(bytes: &B, offset: u64, count: u64, names: u32) -> Result<Vec<Section>, Error>
where
    H: FileHeader<Endian = Le>,
    B: Bytes + ?Sized,
{
    Error::check_entries("section table", count, MAX_SECTIONS)?;
    let headers = entries::<H::SectionHeader, B>(bytes, offset, count, "section headers")?;
    let names = match headers.get(names as usize) {
        Some(names) => {
            let size = names.sh_size(Le).into();
            Error::check_bytes("table of section names", size, MAX_SECTION_NAMES)?;
            read(bytes, names.sh_offset(Le).into(), size, "section names")?
        }
        None => Vec::new(),
    };
    let section = |header: &H::SectionHeader| {
        let name = names.get(header.sh_name(Le) as usize..).unwrap_or_default();
        let name = name.iter().take(MAX_SECTION_NAME).take_while(|byte| **byte != 0).copied().collect::<Vec<_>>();
        Section {
            name: String::from_utf8_lossy(&name).into_owned(),
            kind: header.sh_type(Le),
            flags: header.sh_flags(Le).0,
            place: Place {
                address: header.sh_addr(Le).into(),
                offset: header.sh_offset(Le).into(),
                size: header.sh_size(Le).into(),
            },
            link: header.sh_link(Le),
        }
    };
    Ok(headers.iter().map(section).collect())
}

/// Reads `count` structures; the caller has checked `count` against a limit.
fn entries<T: Pod, B: Bytes + ?Sized>(bytes: &B, offset: u64, count: u64, what: &'static str) -> Result<Vec<T>, Error> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let bytes = read(bytes, offset, count * size_of::<T>() as u64, what)?;
    let (entries, _) = slice_from_bytes::<T>(&bytes, count as usize).map_err(|()| Error::Truncated(what))?;
    Ok(entries.to_vec())
}
