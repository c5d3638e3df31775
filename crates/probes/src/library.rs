//! The functions of an ELF file, by name and by place.
//!
//! Symbols give virtual addresses; the kernel wants offsets in the file, which the `PT_LOAD` segments tell. Several names
//! may share an address (`puts` and `_IO_puts`, or functions that a linker found identical): they are one [`Function`],
//! since two probes there would fire twice for each call.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use object::elf::{
    EM_X86_64, FileHeader64, PF_X, PT_LOAD, SHN_ABS, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, SectionType, Sym64,
    Versym,
};
use object::endian::LittleEndian as Le;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable, Sym as _};
use object::read::{ReadCache, ReadRef};

use crate::site::{at_entry, choose};
use crate::{Error, Site};

const MAX_SEGMENTS: usize = 64;
/// Far above what linkers make: libtorch exports 200,000.
const MAX_SYMBOLS: usize = 1 << 23;
/// Longer names are cut. C++ templates reach a few thousand bytes.
const MAX_NAME: usize = 1 << 14;
/// How much is looked at of a function whose size the file does not tell.
const UNSIZED: u64 = 4096;

/// A function that can be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name to show: of several, the one with the fewest underscores in front, then the shortest.
    pub name: String,
    /// Other names of the same address. Which of them a caller meant cannot be told.
    pub aliases: Vec<String>,
    /// Offset in the file of its first byte.
    pub offset: u64,
    /// In bytes, as the symbol says; 0 if it does not.
    pub size: u64,
    /// Where to put the probe.
    pub site: Site,
}

impl Function {
    /// All its names, the one to show first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

/// Opens a file so that only what is looked at is read: `exported(&open(path)?)`.
pub fn open(path: &Path) -> Result<ReadCache<File>, Error> {
    File::open(path).map(ReadCache::new).map_err(|source| Error::Open { path: path.into(), source })
}

/// The functions a library offers to others, sorted by name: defined, of default version, and not chosen at load time
/// (`STT_GNU_IFUNC`: the symbol is the chooser's, which runs once).
pub fn exported<'data, R: ReadRef<'data>>(data: R) -> Result<Vec<Function>, Error> {
    let library = Library::parse(data)?;
    let Some(table) = library.table(SHT_DYNSYM)? else { return Ok(Vec::new()) };
    library.functions(&table, |index, _| table.is_default(index))
}

/// The functions with a wanted name that were linked into a program, if it still has its `.symtab`: a static libcudart.
pub fn linked<'data, R: ReadRef<'data>>(data: R, wanted: impl Fn(&str) -> bool) -> Result<Vec<Function>, Error> {
    let library = Library::parse(data)?;
    let Some(table) = library.table(SHT_SYMTAB)? else { return Ok(Vec::new()) };
    library.functions(&table, |_, name| wanted(&String::from_utf8_lossy(name)))
}

/// The functions with a wanted name: exported, or local to the file if it still has its `.symtab`.
pub fn matching<'data, R: ReadRef<'data>>(data: R, wanted: impl Fn(&str) -> bool) -> Result<Vec<Function>, Error> {
    let library = Library::parse(data)?;
    let mut found: Vec<Function> = Vec::new();
    let mut offsets = std::collections::HashSet::new();
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let Some(table) = library.table(kind)? else { continue };
        let functions = library.functions(&table, |_, name| wanted(&String::from_utf8_lossy(name)))?;
        found.extend(functions.into_iter().filter(|function| offsets.insert(function.offset)));
    }
    Ok(found)
}

/// One function by its exact name: exported, of an older version, or local to the file if it still has its `.symtab`.
/// Of several local ones with this name, the first.
pub fn find<'data, R: ReadRef<'data>>(data: R, name: &str) -> Result<Option<Function>, Error> {
    let library = Library::parse(data)?;
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let Some(table) = library.table(kind)? else { continue };
        let named = || table.functions().filter(|(_, symbol)| table.is_named(symbol, name));
        let Some((_, symbol)) = named().find(|&(index, _)| table.is_default(index)).or_else(|| named().next()) else {
            continue;
        };
        let mut starts: Vec<u64> = table.functions().map(|(_, symbol)| symbol.st_value(Le)).collect();
        starts.sort_unstable();
        let place = Place { size: symbol.st_size(Le), names: vec![name.into()] };
        if let Some(function) = library.function(symbol.st_value(Le), place, &starts) {
            return Ok(Some(function));
        }
    }
    Ok(None)
}

fn within(what: &'static str, count: u64, limit: u64) -> Result<(), Error> {
    if count > limit { Err(Error::TooMany { what, limit }) } else { Ok(()) }
}

/// What symbols say about one address.
#[derive(Default)]
struct Place {
    size: u64,
    names: Vec<String>,
}

/// Code in the file: an executable `PT_LOAD` segment.
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
}

struct Library<'data, R: ReadRef<'data>> {
    data: R,
    length: u64,
    code: Vec<Segment>,
    sections: SectionTable<'data, FileHeader64<Le>, R>,
}

impl<'data, R: ReadRef<'data>> Library<'data, R> {
    fn parse(data: R) -> Result<Self, Error> {
        let header = FileHeader64::<Le>::parse(data)?;
        header.endian()?;
        if header.e_machine(Le) != EM_X86_64 {
            return Err(Error::Machine(header.e_machine(Le).0));
        }
        let code: Vec<Segment> = header
            .program_headers(Le, data)?
            .iter()
            .filter(|header| header.p_type(Le) == PT_LOAD && header.p_flags(Le).contains(PF_X))
            .map(|header| Segment {
                address: header.p_vaddr(Le),
                offset: header.p_offset(Le),
                size: header.p_filesz(Le),
            })
            .collect();
        if code.is_empty() {
            return Err(Error::NoCode);
        }
        within("segments", code.len() as u64, MAX_SEGMENTS as u64)?;
        let length = data.len().unwrap_or(u64::MAX);
        Ok(Library { data, length, code, sections: header.sections(Le, data)? })
    }

    /// A table of symbols with its names and, for dynamic ones, versions.
    fn table(&self, kind: SectionType) -> Result<Option<Table<'data>>, Error> {
        let symbols = self.sections.symbols(Le, self.data, kind)?;
        if symbols.is_empty() {
            return Ok(None);
        }
        within("symbols", symbols.len() as u64, MAX_SYMBOLS as u64)?;
        let names = self.sections.section(symbols.string_section())?.data(Le, self.data)?;
        let versions = match self.sections.gnu_versym(Le, self.data)? {
            Some((versions, of)) if of == symbols.section() => versions,
            _ => &[],
        };
        Ok(Some(Table { symbols: symbols.symbols(), names, versions }))
    }

    /// The functions of a table that are wanted, by index and name: one for each address, sorted by name.
    fn functions(&self, table: &Table<'data>, wanted: impl Fn(usize, &[u8]) -> bool) -> Result<Vec<Function>, Error> {
        let mut places: BTreeMap<u64, Place> = BTreeMap::new();
        let mut letters = 0;
        let mut starts = Vec::new();
        for (index, symbol) in table.functions() {
            let address = symbol.st_value(Le);
            starts.push(address);
            let Some(name) = table.name(symbol).filter(|name| wanted(index, name)) else { continue };
            letters += name.len() as u64;
            // Names may share their tails, but not so much.
            within("bytes of names", letters, self.length)?;
            let place = places.entry(address).or_default();
            place.size = place.size.max(symbol.st_size(Le));
            place.names.push(String::from_utf8_lossy(name).into_owned());
        }
        starts.sort_unstable();
        let mut functions = Vec::with_capacity(places.len());
        let mut bytes = 0;
        for (address, place) in places {
            let Some(function) = self.function(address, place, &starts) else { continue };
            bytes += function.size;
            within("bytes of functions", bytes, self.length)?;
            functions.push(function);
        }
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(functions)
    }

    /// A function with its site; none if its code is not in the file. `starts` are the addresses of all functions, sorted.
    fn function(&self, address: u64, mut place: Place, starts: &[u64]) -> Option<Function> {
        let (offset, left) = self.code.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address).filter(|&inside| inside < segment.size)?;
            Some((segment.offset.checked_add(inside)?, segment.size - inside))
        })?;
        let next = starts[starts.partition_point(|&start| start <= address)..].first().map(|start| start - address);
        let extent = if place.size > 0 { place.size } else { next.unwrap_or(u64::MAX).min(UNSIZED) };
        let code = self.data.read_bytes_at(offset, extent.min(left)).ok()?;
        let (delta, cost) = match choose(code, address) {
            // Another function begins in between: whoever calls that one is no caller of this one.
            (delta, _) if next.is_some_and(|next| next <= delta) => (0, at_entry(code, address)),
            site => site,
        };
        place.names.sort_by(|a, b| rank(a).cmp(&rank(b)));
        place.names.dedup();
        let mut names = place.names.into_iter();
        let site = Site { offset: offset + delta, cost };
        Some(Function { name: names.next()?, aliases: names.collect(), offset, size: place.size.min(left), site })
    }
}

/// Names in the order people would choose them: `puts` before `_IO_puts`, `cuFoo` before `cuFoo_v2`.
fn rank(name: &str) -> (usize, usize, &str) {
    (name.len() - name.trim_start_matches('_').len(), name.len(), name)
}

struct Table<'data> {
    symbols: &'data [Sym64<Le>],
    names: &'data [u8],
    versions: &'data [Versym<Le>],
}

impl<'data> Table<'data> {
    /// Defined functions, with their index.
    fn functions(&self) -> impl Iterator<Item = (usize, &'data Sym64<Le>)> {
        let defined = |symbol: &Sym64<Le>| symbol.st_shndx(Le) != SHN_UNDEF && symbol.st_shndx(Le) != SHN_ABS;
        self.symbols
            .iter()
            .enumerate()
            .filter(move |(_, symbol)| symbol.st_type() == STT_FUNC && defined(symbol) && symbol.st_value(Le) != 0)
    }

    /// Whether a plain reference to the name means this symbol: `name@@VERSION`, or no version at all.
    fn is_default(&self, index: usize) -> bool {
        self.versions.get(index).map(|version| version.0.get(Le)).is_none_or(|it| !it.is_hidden() && !it.is_local())
    }

    fn name(&self, symbol: &Sym64<Le>) -> Option<&'data [u8]> {
        let rest = self.names.get(symbol.st_name(Le) as usize..)?;
        let rest = &rest[..rest.len().min(MAX_NAME)];
        let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| !name.is_empty())
    }

    /// Compares without looking for the name's end: that may be far in a broken file.
    fn is_named(&self, symbol: &Sym64<Le>, name: &str) -> bool {
        let rest = self.names.get(symbol.st_name(Le) as usize..);
        let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
        !name.is_empty() && rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}
