//! The functions of an ELF file, by name and by location.
//!
//! Symbols have virtual addresses; the kernel needs offsets in the file, which follow from the `PT_LOAD` segments.
//! Several names may share an address (`puts` and `_IO_puts`, or functions merged by a linker): they are one
//! [`Function`], since two probes there would fire twice for each call.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::Path;

use elf::{
    Budget, Bytes, EM_X86_64, Elf, SHN_ABS, SHT_DYNSYM, SHT_GNU_VERSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, Symbol,
    Symbols,
};

use crate::site::{at_entry, choose};
use crate::{Error, Site};

/// Bytes read of a function whose size is not in the file.
const UNSIZED: u64 = 4096;
/// Bytes read of a function that is too large to search: enough for its first instructions.
const ENTRY: u64 = 128;
/// Larger functions are probed at their entry.
const LARGEST: u64 = 1 << 20;

/// A function that can be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name to show: of several, the one with the fewest leading underscores, then the shortest.
    pub name: String,
    /// Other names of the same address. It is unknown which of them a caller used.
    pub aliases: Vec<String>,
    /// Offset in the file of its first byte.
    pub offset: u64,
    /// Its size in bytes from the symbol; 0 if unknown.
    pub size: u64,
    /// Where to place the probe.
    pub site: Site,
}

impl Function {
    /// Returns all its names, the one to show first.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

/// Opens a regular file.
pub fn open(path: &Path) -> Result<File, Error> {
    elf::open(path).map_err(|source| Error::Open { path: path.into(), source })
}

/// Returns the exported functions with a name accepted by `accept`, sorted by name: defined, of default version, and
/// not resolved at load time (`STT_GNU_IFUNC`: the symbol is the resolver's, which runs once).
pub fn exported<B: Bytes + ?Sized>(
    bytes: &B,
    mut accept: impl FnMut(&str) -> bool,
    budget: &Budget,
) -> Result<Vec<Function>, Error> {
    let library = Library::read(bytes, budget)?;
    let Some(table) = library.table(SHT_DYNSYM)? else { return Ok(Vec::new()) };
    library.functions(&table, |index, name| table.is_default(index) && accept(name), |index, _| table.is_default(index))
}

/// Returns the functions with an accepted name that were linked into a program, such as a static libcudart, if it still
/// has its `.symtab`.
pub fn linked<B: Bytes + ?Sized>(
    bytes: &B,
    mut accept: impl FnMut(&str) -> bool,
    budget: &Budget,
) -> Result<Vec<Function>, Error> {
    let library = Library::read(bytes, budget)?;
    let Some(table) = library.table(SHT_SYMTAB)? else { return Ok(Vec::new()) };
    library.functions(&table, |_, name| accept(name), |_, _| false)
}

/// Returns the functions with an accepted name: exported, or local to the file if it still has its `.symtab`.
pub fn matching<B: Bytes + ?Sized>(
    bytes: &B,
    accept: impl Fn(&str) -> bool,
    budget: &Budget,
) -> Result<Vec<Function>, Error> {
    let library = Library::read(bytes, budget)?;
    let mut found: Vec<Function> = Vec::new();
    let mut offsets = HashSet::new();
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let Some(table) = library.table(kind)? else { continue };
        let functions = library.functions(&table, |_, name| accept(name), |_, _| false)?;
        found.extend(functions.into_iter().filter(|function| offsets.insert(function.offset)));
    }
    Ok(found)
}

/// Returns one function by its exact name: exported, of an older version, or local to the file if it still has its
/// `.symtab`. Of several local ones with this name, the first.
pub fn find<B: Bytes + ?Sized>(bytes: &B, name: &str, budget: &Budget) -> Result<Option<Function>, Error> {
    let library = Library::read(bytes, budget)?;
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let Some(table) = library.table(kind)? else { continue };
        let (mut default, mut first, mut starts) = (None, None, Vec::new());
        library.each(&table, |index, symbol| {
            starts.push(symbol.address);
            if table.name(&symbol) == Some(name.as_bytes()) {
                first = first.or(Some(symbol));
                default = default.or_else(|| table.is_default(index).then_some(symbol));
            }
        })?;
        starts.sort_unstable();
        let function = default.or(first).and_then(|symbol| {
            let place = Place { size: symbol.size, names: vec![name.into()] };
            library.function(symbol.address, place, &starts, &mut { budget.code })
        });
        if function.is_some() {
            return Ok(function);
        }
    }
    Ok(None)
}

/// Whether a plain reference to the name is bound to one of several functions when the library is loaded
/// (`STT_GNU_IFUNC`), as with `memcpy`: the symbol is that of the resolver, which runs once.
pub fn chosen_at_load<B: Bytes + ?Sized>(bytes: &B, name: &str, budget: &Budget) -> Result<bool, Error> {
    let library = Library::read(bytes, budget)?;
    let Some(table) = library.table(SHT_DYNSYM)? else { return Ok(false) };
    let mut chosen = false;
    table.symbols.each(bytes, budget.symbols, |index, symbol| {
        chosen |=
            symbol.kind == STT_GNU_IFUNC && table.is_default(index) && table.name(&symbol) == Some(name.as_bytes());
    })?;
    Ok(chosen)
}

/// Whether an offset of the file is in code, where a probe can be placed.
pub fn offset_in_code<B: Bytes + ?Sized>(bytes: &B, offset: u64) -> Result<bool, Error> {
    let elf = Elf::read(bytes)?;
    let holds =
        |segment: &elf::Segment| offset.checked_sub(segment.offset).is_some_and(|inside| inside < segment.file_size);
    Ok(elf.segments.executable().any(holds))
}

/// Returns how many bytes of the executable segment around an offset of the file are before it, and how many after.
pub fn code_around<B: Bytes + ?Sized>(bytes: &B, offset: u64) -> Result<Option<(u64, u64)>, Error> {
    let elf = Elf::read(bytes)?;
    let around = |segment: &elf::Segment| {
        let before = offset.checked_sub(segment.offset)?;
        segment.file_size.checked_sub(before).filter(|after| *after > 0).map(|after| (before, after))
    };
    Ok(elf.segments.executable().find_map(around))
}

/// The names and the size from the symbols of one address.
#[derive(Default)]
struct Place {
    size: u64,
    names: Vec<String>,
}

struct Library<'a, B: ?Sized> {
    bytes: &'a B,
    elf: Elf,
    budget: &'a Budget,
}

impl<'a, B: Bytes + ?Sized> Library<'a, B> {
    fn read(bytes: &'a B, budget: &'a Budget) -> Result<Self, Error> {
        let elf = Elf::read(bytes)?;
        if elf.machine != EM_X86_64.0 || !elf.wide {
            return Err(Error::Machine(elf.machine));
        }
        if elf.segments.executable().next().is_none() {
            return Err(Error::NoCode);
        }
        Ok(Library { bytes, elf, budget })
    }

    /// Reads a symbol table with its names and, for dynamic symbols, versions.
    fn table(&self, kind: elf::SectionType) -> Result<Option<Table<'_>>, Error> {
        let Some(symbols) = Symbols::of(&self.elf, kind) else { return Ok(None) };
        let names = symbols.strings().read(self.bytes, self.budget.strings, "string table")?;
        let versions = self
            .elf
            .sections
            .iter()
            .find(|section| section.kind == SHT_GNU_VERSYM && section.link as usize == symbols.index)
            .map(|section| section.read(self.bytes, self.budget.strings, "table of versions"))
            .transpose()?
            .unwrap_or_default();
        Ok(Some(Table { symbols, names, versions }))
    }

    /// Visits the defined functions of a table, with their index.
    fn each(&self, table: &Table<'_>, mut each: impl FnMut(usize, Symbol)) -> Result<(), Error> {
        let is_function = |symbol: &Symbol| {
            symbol.kind == STT_FUNC && symbol.is_defined() && symbol.section != SHN_ABS.0 && symbol.address != 0
        };
        table.symbols.each(self.bytes, self.budget.symbols, |index, symbol| {
            if is_function(&symbol) {
                each(index, symbol);
            }
        })?;
        Ok(())
    }

    /// Returns the accepted functions of a table, by index and name: one for each address, sorted by name. Other
    /// symbols of the same address that satisfy `aliases` add names. `accept` is called once for each symbol.
    fn functions(
        &self,
        table: &Table<'_>,
        mut accept: impl FnMut(usize, &str) -> bool,
        aliases: impl Fn(usize, &str) -> bool,
    ) -> Result<Vec<Function>, Error> {
        let mut places: BTreeMap<u64, Place> = BTreeMap::new();
        let mut accepted = HashSet::new();
        let mut starts = Vec::new();
        let mut letters = 0;
        let mut add = |place: &mut Place, symbol: &Symbol, name: &str| {
            letters += name.len() as u64;
            place.size = place.size.max(symbol.size);
            // Names may share their ends, but not to this extent.
            if letters <= self.budget.strings {
                place.names.push(name.to_owned());
            }
        };
        self.each(table, |index, symbol| {
            starts.push(symbol.address);
            let Some(name) = table.name(&symbol).map(String::from_utf8_lossy) else { return };
            if accept(index, &name) {
                accepted.insert(index);
                add(places.entry(symbol.address).or_default(), &symbol, &name);
            }
        })?;
        starts.sort_unstable();
        self.each(table, |index, symbol| {
            let Some(place) = places.get_mut(&symbol.address) else { return };
            let Some(name) = table.name(&symbol).map(String::from_utf8_lossy) else { return };
            if !accepted.contains(&index) && aliases(index, &name) {
                add(place, &symbol, &name);
            }
        })?;
        elf::Error::check_bytes("list of names", letters, self.budget.strings)?;
        let mut room = self.budget.code;
        let function = |(address, place)| self.function(address, place, &starts, &mut room);
        let mut functions: Vec<Function> = places.into_iter().filter_map(function).collect();
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(functions)
    }

    /// Returns a function with its site; `None` if its code is not in the file. `starts` are the sorted addresses of
    /// all functions. Reads at most `room` bytes of code and reduces it; when it is used up, and for very large
    /// functions, reads only the entry.
    fn function(&self, address: u64, mut place: Place, starts: &[u64], room: &mut u64) -> Option<Function> {
        let (offset, left) = self.elf.segments.executable().find_map(|segment| {
            let inside = address.checked_sub(segment.address).filter(|&inside| inside < segment.file_size)?;
            Some((segment.offset.checked_add(inside)?, segment.file_size - inside))
        })?;
        let next = starts[starts.partition_point(|&start| start <= address)..].first().map(|start| start - address);
        let extent = if place.size > 0 { place.size } else { next.unwrap_or(u64::MAX).min(UNSIZED) };
        let whole = extent.min(left);
        offset.checked_add(whole).filter(|end| *end <= self.bytes.length())?;
        let searched = whole <= LARGEST.min(*room);
        let code = elf::read(self.bytes, offset, if searched { whole } else { whole.min(ENTRY) }, "code").ok()?;
        *room = room.saturating_sub(code.len() as u64);
        let (delta, cost) = match searched.then(|| choose(&code, address)) {
            // Another function begins in between: its callers do not call this one.
            Some((delta, cost)) if next.is_none_or(|next| next > delta) => (delta, cost),
            _ => (0, at_entry(&code, address)),
        };
        place.names.sort_by(|a, b| rank(a).cmp(&rank(b)));
        place.names.dedup();
        let mut names = place.names.into_iter();
        let site = Site { offset: offset + delta, cost };
        Some(Function { name: names.next()?, aliases: names.collect(), offset, size: place.size.min(left), site })
    }
}

/// Ranks names as people would choose them: `puts` before `_IO_puts`, `cuFoo` before `cuFoo_v2`.
fn rank(name: &str) -> (usize, usize, &str) {
    (name.len() - name.trim_start_matches('_').len(), name.len(), name)
}

struct Table<'a> {
    symbols: Symbols<'a>,
    names: Vec<u8>,
    versions: Vec<u8>,
}

impl Table<'_> {
    /// Whether a plain reference to the name refers to this symbol: `name@@VERSION`, or no version at all.
    fn is_default(&self, index: usize) -> bool {
        const HIDDEN: u16 = 0x8000;
        const LOCAL: u16 = 0;
        let bytes = index.checked_mul(2).and_then(|at| self.versions.get(at..at + 2));
        bytes.map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]])).is_none_or(|it| it & HIDDEN == 0 && it != LOCAL)
    }

    fn name(&self, symbol: &Symbol) -> Option<&[u8]> {
        Symbols::name_in(&self.names, symbol)
    }
}
