//! Symbol tables, read in pieces.

use object::{
    LittleEndian as Le,
    elf::{SectionType, Sym32, Sym64, SymbolSection, SymbolType},
    pod::{Pod, slice_from_bytes},
    read::elf::Sym,
};

use crate::{
    Bytes, Elf, Error, Section,
    bytes::{fill, one, read},
};

/// Number of symbols read at a time.
const PIECE: usize = 4096;
/// Longer names are truncated. C++ templates reach a few thousand bytes.
const MAX_NAME: usize = 1 << 14;
/// Most names are shorter: this many bytes are read first.
const USUAL_NAME: usize = 256;

/// A symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Offset of its name in the string table.
    pub name: u32,
    /// `STT_*`
    pub kind: SymbolType,
    /// `STB_*`
    pub binding: u8,
    /// The index of its section.
    pub section: u16,
    /// Its virtual address.
    pub address: u64,
    /// Its size in bytes; 0 if unknown.
    pub size: u64,
}

impl Symbol {
    /// Whether it is defined in this file, not imported.
    pub fn is_defined(&self) -> bool {
        self.section != object::elf::SHN_UNDEF.0
    }
}

/// A symbol table of a file, with its string table.
#[derive(Clone, Copy, Debug)]
pub struct Symbols<'a> {
    /// The index of its section.
    pub index: usize,
    table: &'a Section,
    strings: &'a Section,
    wide: bool,
}

impl<'a> Symbols<'a> {
    /// Returns the first table of a kind, `SHT_SYMTAB` or `SHT_DYNSYM`.
    pub fn of(elf: &'a Elf, kind: SectionType) -> Option<Self> {
        let found = elf.sections.iter().enumerate().find(|(_, section)| section.kind == kind && section.is_in_file());
        let (index, table) = found?;
        Some(Self { index, table, strings: elf.sections.get(table.link as usize)?, wide: elf.wide })
    }

    /// Returns the section with the names.
    pub fn strings(&self) -> &'a Section {
        self.strings
    }

    /// Calls `each` for every symbol with its index, in constant memory. Rejects a table of more than `limit` bytes.
    pub fn each<B: Bytes + ?Sized>(&self, bytes: &B, limit: u64, each: impl FnMut(usize, Symbol)) -> Result<(), Error> {
        if self.wide {
            self.stream::<Sym64<Le>, B>(bytes, limit, each)
        } else {
            self.stream::<Sym32<Le>, B>(bytes, limit, each)
        }
    }

    fn stream<S, B>(&self, bytes: &B, limit: u64, mut each: impl FnMut(usize, Symbol)) -> Result<(), Error>
    where
        S: Sym<Endian = Le> + Pod,
        B: Bytes + ?Sized,
    {
        const WHAT: &str = "symbol table";
        let place = self.table.place;
        Error::check_bytes(WHAT, place.size, limit)?;
        if place.offset.checked_add(place.size).is_none_or(|end| end > bytes.length()) {
            return Err(Error::Truncated(WHAT));
        }
        let count = usize::try_from(place.size).unwrap_or(usize::MAX) / size_of::<S>();
        let mut piece = vec![0; PIECE.min(count) * size_of::<S>()];
        let mut done = 0;
        while done < count {
            let length = PIECE.min(count - done) * size_of::<S>();
            let read = fill(bytes, &mut piece[..length], place.offset + (done * size_of::<S>()) as u64);
            let (symbols, _) =
                slice_from_bytes::<S>(&piece, read / size_of::<S>()).map_err(|()| Error::Truncated(WHAT))?;
            for (i, symbol) in symbols.iter().enumerate() {
                each(done + i, convert(symbol));
            }
            if read < length {
                return Err(Error::Truncated(WHAT));
            }
            done += symbols.len();
        }
        Ok(())
    }

    /// Reads one symbol of a 64-bit file.
    pub(crate) fn at<B: Bytes + ?Sized>(&self, bytes: &B, index: u64) -> Option<Symbol> {
        let offset =
            index.checked_mul(size_of::<Sym64<Le>>() as u64).filter(|offset| *offset < self.table.place.size)?;
        let read =
            read(bytes, self.table.place.offset.checked_add(offset)?, size_of::<Sym64<Le>>() as u64, "symbol").ok()?;
        one::<Sym64<Le>>(&read).map(convert)
    }

    /// Reads the name of one symbol: for a few of many.
    pub fn name<B: Bytes + ?Sized>(&self, bytes: &B, symbol: &Symbol) -> Option<Vec<u8>> {
        Self::string(bytes, self.strings, symbol.name.into()).filter(|name| !name.is_empty())
    }

    /// Reads one string of a string table.
    pub(crate) fn string<B: Bytes + ?Sized>(bytes: &B, strings: &Section, at: u64) -> Option<Vec<u8>> {
        let left = strings.place.size.checked_sub(at).filter(|_| strings.is_in_file())?;
        let offset = strings.place.offset.checked_add(at)?;
        [USUAL_NAME, MAX_NAME].into_iter().find_map(|most| {
            let mut text = vec![0; usize::try_from(left).unwrap_or(most).min(most)];
            let read = fill(bytes, &mut text, offset);
            text.truncate(read);
            match text.iter().position(|byte| *byte == 0) {
                Some(end) => text.truncate(end),
                None if most == MAX_NAME => {}
                None => return None,
            }
            Some(text)
        })
    }

    /// Returns the name of a symbol in a string table that was read completely.
    pub fn name_in<'s>(strings: &'s [u8], symbol: &Symbol) -> Option<&'s [u8]> {
        let rest = strings.get(symbol.name as usize..)?;
        let rest = &rest[..rest.len().min(MAX_NAME)];
        let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| !name.is_empty())
    }
}

fn convert<S: Sym<Endian = Le>>(symbol: &S) -> Symbol {
    let SymbolSection(section) = symbol.st_shndx(Le);
    Symbol {
        name: symbol.st_name(Le),
        kind: symbol.st_type(),
        binding: symbol.st_bind().0,
        section,
        address: symbol.st_value(Le).into(),
        size: symbol.st_size(Le).into(),
    }
}
