//! Reads lines and inlined functions from a file's DWARF.
//!
//! All addresses of a file are looked up in one pass: units that contain none of them are skipped after their header,
//! the others are read once, for their lines and their functions. Only the data needed for the addresses is kept.
//!
//! A malicious file may try to take long or to fill memory. Sections are read into our own memory, never mapped, within
//! a [`Budget`]; so is the parser's output: abbreviations and line headers become structures twenty to a hundred times
//! as large as their bytes.
//!
//! The limits of a recording are 30 s and 2 GiB of sections for each file, less in the monitor.

use std::{
    cell::{Cell, RefCell},
    fmt,
    fs::File,
    sync::Arc,
    time::Instant,
};

use elf::{Budget, Elf, Error};
use gimli::{
    Abbreviations, Attribute, AttributeValue, DW_AT_abstract_origin, DW_AT_call_file, DW_AT_call_line,
    DW_AT_linkage_name, DW_AT_name, DW_AT_specification, DW_AT_stmt_list, DW_TAG_inlined_subroutine, DW_TAG_subprogram,
    DebugAbbrev, DebugAbbrevOffset, Dwarf, EndianSlice, LittleEndian, RangeIter, Section as _, SectionId, Unit,
    UnitHeader, UnitOffset,
};

use crate::{
    debug_sections::{self, Unreadable},
    demangle::demangle,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The maximum number of references from an inlined function to the entry with its name.
const MOST_LINKS: usize = 16;
/// The maximum depth of inlined functions at one address.
const MOST_INLINED: usize = 64;
/// The maximum length of a name in bytes. C++ templates reach a few thousand.
const LONGEST_NAME: usize = 1 << 14;
/// The maximum size of a line program's header: ten thousand files take some 600 KiB.
const MOST_LINE_HEADER: u64 = 2 << 20;
/// The maximum number of units. Chromium has 40,000.
const MOST_UNITS: u64 = 1 << 18;

/// The result for one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The function, demangled.
    pub(crate) function: Option<String>,
    /// The line in the function.
    pub(crate) place: Option<Place>,
    /// The functions inlined there, outermost first, each with its own line.
    pub(crate) inlined: Vec<(String, Option<Place>)>,
}

/// A source line: the file's name without its directory, and the line number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    file: String,
    line: u64,
}

sandbox::plain! {
    Answer { function, place, inlined }
    Place { file, line }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Looks up all addresses, which are virtual addresses of the file. Returns an answer for each, even on errors.
pub(crate) fn lines(file: &File, elf: &Elf, addresses: &[u64], budget: &Budget) -> (Vec<Answer>, Option<Unreadable>) {
    let mut spots: Vec<Spot> = addresses.iter().map(|address| Spot { address: *address, ..Spot::default() }).collect();
    let mut order: Vec<usize> = (0..spots.len()).collect();
    order.sort_by_key(|i| spots[*i].address);
    let mut sorted: Vec<Spot> = order.iter().map(|i| std::mem::take(&mut spots[*i])).collect();
    let unreadable = look_up(file, elf, budget, &mut sorted).err();
    for (i, spot) in order.into_iter().zip(sorted) {
        spots[i] = spot;
    }
    (spots.into_iter().map(Spot::answer).collect(), unreadable)
}

/// An address and its results so far.
#[derive(Clone, Debug, Default)]
struct Spot {
    address: u64,
    function: Option<String>,
    line: Option<Place>,
    /// Outermost first: the name, and the line it was called from.
    inlined: Vec<(Option<String>, Option<Place>)>,
}

impl Spot {
    /// Each function's line is where the next inner one was called; the innermost has the line itself.
    fn answer(self) -> Answer {
        let (names, calls): (Vec<_>, Vec<_>) = self.inlined.into_iter().unzip();
        let mut places = calls.into_iter().chain([self.line]);
        let place = places.next().flatten();
        let inlined = names.into_iter().zip(places).filter_map(|(name, place)| Some((name?, place))).collect();
        Answer { function: self.function, place, inlined }
    }
}

fn look_up(file: &File, elf: &Elf, budget: &Budget, spots: &mut [Spot]) -> Result<(), Unreadable> {
    let clock = Clock { until: Instant::now() + budget.time, seconds: budget.time.as_secs(), ticks: Cell::new(0) };
    let sections = debug_sections::read(file, elf, budget)?;
    clock.check()?;
    let dwarf = Dwarf::load(|id: SectionId| {
        let bytes = sections.get(id.name()).map_or(&[][..], |bytes| bytes);
        Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
    })?;
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    // Nothing after a malformed header can be found.
    while let Ok(Some(header)) = headers.next() {
        Error::check_entries("list of units", units.len() as u64 + 1, MOST_UNITS.min(budget.debug / 1024))?;
        units.push(header);
    }
    let (most_line_header, most_abbreviations) = (MOST_LINE_HEADER.min(budget.debug / 128), budget.debug / 32);
    let abbreviations = RefCell::default();
    let reader = Reader { dwarf: &dwarf, units: &units, abbreviations, most_abbreviations, most_line_header, clock };
    let mut broken = None;
    for header in &units {
        // A malformed unit only loses its own lines.
        match reader.unit(*header, spots) {
            Err(why @ Unreadable::Time(_)) => return Err(why),
            Err(why) => broken = Some(why),
            Ok(()) => {}
        }
    }
    broken.map_or(Ok(()), Err)
}

/// Limits the time spent on a file.
struct Clock {
    until: Instant,
    seconds: u64,
    ticks: Cell<u32>,
}

impl Clock {
    fn check(&self) -> Result<(), Unreadable> {
        if Instant::now() > self.until { Err(Unreadable::Time(self.seconds)) } else { Ok(()) }
    }

    /// Checks only occasionally: for steps that take less than a microsecond.
    fn tick(&self) -> Result<(), Unreadable> {
        let ticks = self.ticks.get().wrapping_add(1);
        self.ticks.set(ticks);
        if ticks.is_multiple_of(1 << 10) { self.check() } else { Ok(()) }
    }
}

struct Reader<'a> {
    dwarf: &'a Dwarf<Slice<'a>>,
    /// Sorted by offset.
    units: &'a [UnitHeader<Slice<'a>>],
    /// The abbreviations used last. Usually all units of a file share theirs; but each could also have its own,
    /// overlapping in the file but not in memory, so only one is kept.
    abbreviations: RefCell<Option<(DebugAbbrevOffset, Arc<Abbreviations>)>>,
    /// The most bytes of one unit's abbreviations. A section with those of a thousand units is much larger.
    most_abbreviations: u64,
    most_line_header: u64,
    clock: Clock,
}

impl<'a> Reader<'a> {
    fn unit(&self, header: UnitHeader<Slice<'a>>, spots: &mut [Spot]) -> Result<(), Unreadable> {
        self.clock.check()?;
        let unit = self.open(header)?;
        if self.each_inside(self.dwarf.unit_ranges(&unit)?, spots, |_| {})? {
            self.lines(&unit, spots)?;
            self.functions(&unit, spots)?;
        }
        Ok(())
    }

    /// Parses the start of a unit. Its line header is checked before, because the parser creates a structure for each
    /// entry.
    fn open(&self, header: UnitHeader<Slice<'a>>) -> Result<Unit<Slice<'a>>, Unreadable> {
        let abbreviations = self.abbreviations(&header)?;
        let mut entries = header.entries(&abbreviations);
        entries.next_dfs()?;
        if let Some(AttributeValue::DebugLineRef(offset)) =
            entries.current().and_then(|e| e.attr_value(DW_AT_stmt_list))
        {
            let size = line_header_size(self.dwarf.debug_line.reader().slice(), offset.0).ok_or(Unreadable::Broken)?;
            Error::check_bytes("line header", size, self.most_line_header)?;
        }
        Ok(Unit::new_with_abbreviations(self.dwarf, header, abbreviations)?)
    }

    fn abbreviations(&self, header: &UnitHeader<Slice<'a>>) -> Result<Arc<Abbreviations>, Unreadable> {
        let offset = header.debug_abbrev_offset();
        let mut last = self.abbreviations.borrow_mut();
        match &*last {
            Some((known, abbreviations)) if *known == offset => Ok(abbreviations.clone()),
            _ => {
                *last = None;
                let abbreviations = Arc::new(self.parse_abbreviations(header, offset)?);
                *last = Some((offset, abbreviations.clone()));
                Ok(abbreviations)
            }
        }
    }

    /// Parses the abbreviations of a unit. The parser sees no more bytes of the section than they may have.
    fn parse_abbreviations(
        &self,
        header: &UnitHeader<Slice<'a>>,
        offset: DebugAbbrevOffset,
    ) -> Result<Abbreviations, Unreadable> {
        let section = self.dwarf.debug_abbrev.reader().slice();
        let left = section.len().saturating_sub(offset.0) as u64;
        let end = section.len() - left.saturating_sub(self.most_abbreviations) as usize;
        match header.abbreviations(&DebugAbbrev::new(&section[..end], LittleEndian)) {
            Err(gimli::Error::UnexpectedEof(_)) if end < section.len() => {
                Error::check_bytes("table of abbreviations", left, self.most_abbreviations)?;
                Err(Unreadable::Broken)
            }
            parsed => Ok(parsed?),
        }
    }

    /// Reads the lines. A row of the line table covers from its address to that of the next.
    fn lines(&self, unit: &Unit<Slice<'a>>, spots: &mut [Spot]) -> Result<(), Unreadable> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut rows = program.rows();
        let mut last: Option<(u64, u64, u64)> = None;
        let mut removed = false;
        while let Some((header, row)) = rows.next_row()? {
            self.clock.tick()?;
            match last {
                // Code that the linker removed has the address 0.
                None => removed = row.address() == 0,
                Some((start, file, line)) if !removed => {
                    for spot in inside(spots, start, row.address()) {
                        self.clock.check()?;
                        spot.line = self.place(unit, header, file, line);
                    }
                }
                Some(_) => {}
            }
            let line = row.line().map_or(0, std::num::NonZeroU64::get);
            last = (!row.end_sequence()).then_some((row.address(), row.file_index(), line));
        }
        Ok(())
    }

    fn place(
        &self,
        unit: &Unit<Slice<'a>>,
        header: &gimli::LineProgramHeader<Slice<'a>>,
        file: u64,
        line: u64,
    ) -> Option<Place> {
        let path = self.dwarf.attr_string(unit, header.file(file)?.path_name()).ok()?;
        let path = path.slice();
        let file = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty())?;
        (line > 0).then(|| Place { file: text(file), line })
    }

    /// Reads functions, and those inlined into them, in the order of nesting.
    fn functions(&self, unit: &Unit<Slice<'a>>, spots: &mut [Spot]) -> Result<(), Unreadable> {
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            self.clock.tick()?;
            let tag = entry.tag();
            if tag != DW_TAG_subprogram && tag != DW_TAG_inlined_subroutine {
                continue;
            }
            let Ok(ranges) = self.dwarf.die_ranges(unit, entry) else { continue };
            let mut found = None;
            self.each_inside(ranges, spots, |spot| {
                let (name, call) = found.get_or_insert_with(|| {
                    let name = self.name(unit, entry.offset(), MOST_LINKS).map(|name| demangle(&name));
                    let number = |at| entry.attr(at).and_then(Attribute::udata_value);
                    let call = unit.line_program.as_ref().and_then(|program| {
                        self.place(unit, program.header(), number(DW_AT_call_file)?, number(DW_AT_call_line)?)
                    });
                    (name, call)
                });
                if tag == DW_TAG_subprogram {
                    spot.function = name.clone();
                    spot.inlined.clear();
                } else if spot.inlined.len() < MOST_INLINED {
                    spot.inlined.push((name.clone(), call.clone()));
                }
            })?;
        }
        Ok(())
    }

    /// Returns the mangled name of a function, or the plain one; it may be in the entry that this one refers to.
    fn name(&self, unit: &Unit<Slice<'a>>, offset: UnitOffset, links: usize) -> Option<String> {
        let entry = unit.entry(offset).ok()?;
        let text = |at| {
            let name = self.dwarf.attr_string(unit, entry.attr_value(at)?).ok()?;
            Some(text(name.slice()))
        };
        let referred = || {
            let links = links.checked_sub(1)?;
            match entry.attr_value(DW_AT_abstract_origin).or_else(|| entry.attr_value(DW_AT_specification))? {
                AttributeValue::UnitRef(offset) => self.name(unit, offset, links),
                AttributeValue::DebugInfoRef(offset) => {
                    let place = self.units.partition_point(|u| u.debug_info_offset().is_some_and(|at| at <= offset));
                    let header = *self.units.get(place.checked_sub(1)?)?;
                    let offset = offset.to_unit_offset(&header)?;
                    self.name(&self.open(header).ok()?, offset, links)
                }
                _ => None,
            }
        };
        text(DW_AT_linkage_name).or_else(referred).or_else(|| text(DW_AT_name))
    }

    /// Visits the spots in some ranges; returns whether there were any.
    fn each_inside(
        &self,
        mut ranges: RangeIter<Slice<'_>>,
        spots: &mut [Spot],
        mut each: impl FnMut(&mut Spot),
    ) -> Result<bool, Unreadable> {
        let mut any = false;
        while let Some(range) = ranges.next()? {
            self.clock.tick()?;
            // Code that the linker removed has the address 0.
            if range.begin > 0 {
                for spot in inside(spots, range.begin, range.end) {
                    any = true;
                    each(spot);
                }
            }
        }
        Ok(any)
    }
}

/// Returns the spots from `start` up to `end`; they are sorted.
fn inside(spots: &mut [Spot], start: u64, end: u64) -> &mut [Spot] {
    let first = spots.partition_point(|spot| spot.address < start);
    let count = spots[first..].partition_point(|spot| spot.address < end);
    &mut spots[first..first + count]
}

/// Converts a name to text, truncated if it is too long.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(LONGEST_NAME)]).into_owned()
}

/// Returns the `header_length` of the line program at an offset: it follows the unit length, the version and, from
/// version 5 on, two sizes.
fn line_header_size(lines: &[u8], offset: usize) -> Option<u64> {
    let number = |at: usize, length: usize| {
        let bytes = lines.get(offset.checked_add(at)?..)?.get(..length)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let wide = number(0, 4)? == 0xffff_ffff;
    let (version_at, length) = if wide { (12, 8) } else { (4, 4) };
    let sizes = if number(version_at, 2)? >= 5 { 2 } else { 0 };
    number(version_at + 2 + sizes, length)
}
