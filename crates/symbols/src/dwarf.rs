//! Lines and inlined functions, from a file's DWARF.
//!
//! All addresses of a file are looked up in one pass: units that hold none of them are left after their header, the others are
//! gone through once, for their lines and for their functions. What is kept is what was asked for. The file may be broken
//! or made to take long, so there is a limit to time and to what is decompressed.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    fs::File,
    io::Read,
    time::{Duration, Instant},
};

use flate2::bufread::ZlibDecoder;
use gimli::{
    AbbreviationsCacheStrategy, Attribute, AttributeValue, DW_AT_abstract_origin, DW_AT_call_file, DW_AT_call_line,
    DW_AT_linkage_name, DW_AT_name, DW_AT_specification, DW_TAG_inlined_subroutine, DW_TAG_subprogram, Dwarf,
    EndianSlice, LittleEndian, RangeIter, SectionId, Unit, UnitHeader, UnitOffset,
};
use memmap2::Mmap;

use crate::{demangle::demangle, elf::Headers};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The most time that one file may take.
const LONGEST: Duration = Duration::from_secs(30);
/// The most bytes that the compressed sections of one file may have when they are not.
const MOST_UNCOMPRESSED: u64 = 2 << 30;
/// The most entries from an inlined function to the one that has its name.
const MOST_LINKS: usize = 16;
/// Sections that are used.
const SECTIONS: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// What a file says of one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The function, demangled.
    pub(crate) function: Option<String>,
    /// Where in the function.
    pub(crate) place: Option<Place>,
    /// What the compiler put into the function there, outermost first, each with its own place.
    pub(crate) inlined: Vec<(String, Option<Place>)>,
}

/// A line of source: the file's name without its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    file: String,
    line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Why there are no answers, or not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Compressed by a method that is not understood.
    Method,
    /// Compressed, and not of the size it says, or too large.
    Size,
    /// It took too long.
    Time,
    /// It makes no sense.
    Broken,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "its debug information is compressed by a method other than zlib",
            Self::Size => "its compressed debug information is broken, or larger than 2 GiB",
            Self::Time => "reading its debug information took longer than 30 s",
            Self::Broken => "its debug information is broken",
        })
    }
}

/// Looks all addresses up, which are virtual addresses of the file. Whatever goes wrong, there is an answer for each.
pub(crate) fn lines(file: &File, headers: &Headers, addresses: &[u64]) -> (Vec<Answer>, Option<Unreadable>) {
    let mut spots: Vec<Spot> = addresses.iter().map(|address| Spot { address: *address, ..Spot::default() }).collect();
    let mut order: Vec<usize> = (0..spots.len()).collect();
    order.sort_by_key(|i| spots[*i].address);
    let mut sorted: Vec<Spot> = order.iter().map(|i| std::mem::take(&mut spots[*i])).collect();
    let unreadable = look_up(file, headers, &mut sorted).err();
    for (i, spot) in order.into_iter().zip(sorted) {
        spots[i] = spot;
    }
    (spots.into_iter().map(Spot::answer).collect(), unreadable)
}

/// An address, and what is known of it so far.
#[derive(Clone, Debug, Default)]
struct Spot {
    address: u64,
    function: Option<String>,
    line: Option<Place>,
    /// Outermost first: the name, and where it was called from.
    inlined: Vec<(Option<String>, Option<Place>)>,
}

impl Spot {
    /// Each function's place is where the next one inward was called from; the innermost's is the line itself.
    fn answer(self) -> Answer {
        let (names, calls): (Vec<_>, Vec<_>) = self.inlined.into_iter().unzip();
        let mut places = calls.into_iter().chain([self.line]);
        let place = places.next().flatten();
        let inlined = names.into_iter().zip(places).filter_map(|(name, place)| Some((name?, place))).collect();
        Answer { function: self.function, place, inlined }
    }
}

fn look_up(file: &File, headers: &Headers, spots: &mut [Spot]) -> Result<(), Unreadable> {
    // SAFETY: the bytes are read only. If somebody shortens the file just now, the process gets SIGBUS: as everywhere where
    // files of others are mapped.
    let bytes = unsafe { Mmap::map(file) }.map_err(|_| Unreadable::Broken)?;
    let mut room = MOST_UNCOMPRESSED;
    let mut sections = HashMap::new();
    for id in SECTIONS {
        sections.insert(id.name(), section(&bytes, headers, id, &mut room)?);
    }
    let mut dwarf = Dwarf::load(|id| {
        let bytes = sections.get(id.name()).map_or(&[][..], |bytes| bytes);
        Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
    })?;
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    // What comes after a broken header cannot be found.
    while let Ok(Some(header)) = headers.next() {
        units.push(header);
    }
    let reader = Reader { dwarf: &dwarf, units: &units, until: Instant::now() + LONGEST };
    let mut broken = None;
    for header in &units {
        // One broken unit costs its own lines.
        match reader.unit(*header, spots) {
            Err(Unreadable::Time) => return Err(Unreadable::Time),
            Err(why) => broken = Some(why),
            Ok(()) => {}
        }
    }
    broken.map_or(Ok(()), Err)
}

fn section<'a>(bytes: &'a [u8], headers: &Headers, id: SectionId, room: &mut u64) -> Result<Cow<'a, [u8]>, Unreadable> {
    let Some(section) = headers.debug.iter().find(|section| section.name == id.name()) else {
        return Ok(Cow::Borrowed(&[]));
    };
    let range = usize::try_from(section.offset).ok().zip(usize::try_from(section.size).ok());
    let range = range.and_then(|(offset, size)| Some(offset..offset.checked_add(size)?));
    let bytes = range.and_then(|range| bytes.get(range)).ok_or(Unreadable::Broken)?;
    let Some(compressed) = section.compressed else { return Ok(Cow::Borrowed(bytes)) };
    if !compressed.zlib {
        return Err(Unreadable::Method);
    }
    *room = room.checked_sub(compressed.size).ok_or(Unreadable::Size)?;
    let mut whole = Vec::new();
    let read = ZlibDecoder::new(bytes).take(compressed.size).read_to_end(&mut whole);
    let right = read.is_ok_and(|read| read as u64 == compressed.size);
    if right { Ok(Cow::Owned(whole)) } else { Err(Unreadable::Size) }
}

impl From<gimli::Error> for Unreadable {
    fn from(_: gimli::Error) -> Self {
        Self::Broken
    }
}

struct Reader<'a> {
    dwarf: &'a Dwarf<Slice<'a>>,
    /// By their offset.
    units: &'a [UnitHeader<Slice<'a>>],
    until: Instant,
}

impl<'a> Reader<'a> {
    fn unit(&self, header: UnitHeader<Slice<'a>>, spots: &mut [Spot]) -> Result<(), Unreadable> {
        self.check_time()?;
        let unit = self.dwarf.unit(header)?;
        if each_inside(self.dwarf.unit_ranges(&unit)?, spots, |_| {})? {
            self.lines(&unit, spots)?;
            self.functions(&unit, spots)?;
        }
        Ok(())
    }

    fn check_time(&self) -> Result<(), Unreadable> {
        if Instant::now() > self.until { Err(Unreadable::Time) } else { Ok(()) }
    }

    /// A row of the table of lines holds from its address to that of the next.
    fn lines(&self, unit: &Unit<Slice<'a>>, spots: &mut [Spot]) -> Result<(), Unreadable> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut rows = program.rows();
        let mut last: Option<(u64, u64, u64)> = None;
        let mut dead = false;
        let mut count = 0_u32;
        while let Some((header, row)) = rows.next_row()? {
            count = count.wrapping_add(1);
            if count.is_multiple_of(1 << 16) {
                self.check_time()?;
            }
            match last {
                // Code that the linker threw away is said to lie at 0.
                None => dead = row.address() == 0,
                Some((start, file, line)) if !dead => {
                    for spot in inside(spots, start, row.address()) {
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
        let path = path.to_string_lossy();
        let file = path.rsplit('/').next().filter(|name| !name.is_empty())?;
        (line > 0).then(|| Place { file: file.to_owned(), line })
    }

    /// Functions, and those inlined into them, in the order of nesting.
    fn functions(&self, unit: &Unit<Slice<'a>>, spots: &mut [Spot]) -> Result<(), Unreadable> {
        let mut entries = unit.entries();
        let mut count = 0_u32;
        while let Some(entry) = entries.next_dfs()? {
            count = count.wrapping_add(1);
            if count.is_multiple_of(1 << 16) {
                self.check_time()?;
            }
            let tag = entry.tag();
            if tag != DW_TAG_subprogram && tag != DW_TAG_inlined_subroutine {
                continue;
            }
            let Ok(ranges) = self.dwarf.die_ranges(unit, entry) else { continue };
            let mut found = None;
            each_inside(ranges, spots, |spot| {
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
                } else {
                    spot.inlined.push((name.clone(), call.clone()));
                }
            })?;
        }
        Ok(())
    }

    /// The mangled name of a function, or the plain one; it may stand in the entry that this one refers to.
    fn name(&self, unit: &Unit<Slice<'a>>, offset: UnitOffset, links: usize) -> Option<String> {
        let entry = unit.entry(offset).ok()?;
        let text = |at| {
            let text = self.dwarf.attr_string(unit, entry.attr_value(at)?).ok()?;
            Some(text.to_string_lossy().into_owned())
        };
        let referred = || {
            let links = links.checked_sub(1)?;
            match entry.attr_value(DW_AT_abstract_origin).or_else(|| entry.attr_value(DW_AT_specification))? {
                AttributeValue::UnitRef(offset) => self.name(unit, offset, links),
                AttributeValue::DebugInfoRef(offset) => {
                    let place = self.units.partition_point(|u| u.debug_info_offset().is_some_and(|at| at <= offset));
                    let header = *self.units.get(place.checked_sub(1)?)?;
                    let offset = offset.to_unit_offset(&header)?;
                    self.name(&self.dwarf.unit(header).ok()?, offset, links)
                }
                _ => None,
            }
        };
        text(DW_AT_linkage_name).or_else(referred).or_else(|| text(DW_AT_name))
    }
}

/// The spots from `start` up to `end`; they are sorted.
fn inside(spots: &mut [Spot], start: u64, end: u64) -> &mut [Spot] {
    let first = spots.partition_point(|spot| spot.address < start);
    let count = spots[first..].partition_point(|spot| spot.address < end);
    &mut spots[first..first + count]
}

/// Goes through the spots in some ranges; whether there were any.
fn each_inside(
    mut ranges: RangeIter<Slice<'_>>,
    spots: &mut [Spot],
    mut each: impl FnMut(&mut Spot),
) -> Result<bool, gimli::Error> {
    let mut any = false;
    while let Some(range) = ranges.next()? {
        // Code that the linker threw away is said to lie at 0.
        if range.begin > 0 {
            for spot in inside(spots, range.begin, range.end) {
                any = true;
                each(spot);
            }
        }
    }
    Ok(any)
}
