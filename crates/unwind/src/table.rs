//! A file's rows: the functions of its sections, in the order of their addresses, compiled one after another.

use std::fs::File;

use gimli::{DebugFrame, EhFrame};
use object::read::{ReadCache, ReadRef};

use crate::elf::{Arch, Elf, FrameBytes};
use crate::frames::{Flavour, Frames, Function, reader};
use crate::program::{Bytes, Machine};
use crate::x86_64::X86_64;
use crate::{Cfa, Error, Loss, Row, Stats};

/// Most rows a table may have: what 24 steps of binary search can tell apart (`UNWIND_MAX_ROWS` in `rows.h`).
pub const MAX_ROWS: usize = 1 << 23;
/// Most functions a file may have: several times what the largest CUDA libraries have.
pub const MAX_FUNCTIONS: usize = 1 << 22;
/// Most bytes a frame section may have.
const MAX_FRAME_BYTES: u64 = 256 << 20;

const PAGE: u64 = 4096;
/// As much code as a program's first function may have, where it has no rules: glibc's loader has 61 bytes.
const ENTRY: u64 = 128;

/// A file's rows, sorted by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What rows' addresses are relative to: the page of the lowest address that has a rule.
    pub base: u64,
    /// One row from each address where the rules change. The last one ends the last function.
    pub rows: Vec<Row>,
    /// What was met on the way.
    pub stats: Stats,
}

impl Table {
    /// Compiles the rows of a whole file in memory.
    pub fn from_elf(data: &[u8]) -> Result<Table, Error> {
        Table::new(&Elf::parse(data)?, data)
    }

    /// Compiles the rows of a file. Only its headers and frame sections are read, and only with `read`: a
    /// file that is cut short meanwhile gives an error, where a mapping of it would give SIGBUS.
    pub fn from_file(file: &File) -> Result<Table, Error> {
        let cache = ReadCache::new(file);
        Table::new(&Elf::parse(&cache)?, &cache)
    }

    /// Compiles the rows of a file whose headers have been read from `data` before. A file without frame sections has
    /// an empty table.
    pub fn new<'data, R: ReadRef<'data>>(elf: &Elf, data: R) -> Result<Table, Error> {
        match elf.arch() {
            Arch::X86_64 => compile::<X86_64, R>(elf, data),
        }
    }

    /// The row for a virtual address of the file. None below the first function; above the last one, and in
    /// holes, a row that says [`Cfa::NoRule`]. The same search is in `walk.h`.
    pub fn lookup(&self, address: u64) -> Option<Row> {
        Row::find(&self.rows, u32::try_from(address.checked_sub(self.base)?).ok()?)
    }
}

fn compile<'data, M: Machine, R: ReadRef<'data>>(elf: &Elf, data: R) -> Result<Table, Error> {
    let mut stats = Stats::default();
    let (eh_bytes, eh_place) = bytes(".eh_frame", elf.eh_frame, data)?;
    let (debug_bytes, debug_place) = bytes(".debug_frame", elf.debug_frame, data)?;
    let section: EhFrame<Bytes<'data>> = reader(eh_bytes).into();
    let eh = Frames::new::<M>(section, Flavour::EhFrame, eh_bytes, &eh_place, elf, &mut stats)?;
    let mut section: DebugFrame<Bytes<'data>> = reader(debug_bytes).into();
    section.set_address_size(8);
    let mut debug = Frames::new::<M>(section, Flavour::DebugFrame, debug_bytes, &debug_place, elf, &mut stats)?;
    // What runs is described by .eh_frame; .debug_frame fills its holes.
    debug.functions.retain(|function| !overlaps(&eh.functions, function));

    let first = [eh.functions.first(), debug.functions.first()].into_iter().flatten().map(|first| first.start).min();
    let last = [&eh.functions, &debug.functions].into_iter().flatten().map(|function| function.end).max();
    let (Some(first), Some(last)) = (first, last) else { return Ok(Table { stats, ..Table::default() }) };
    let base = first & !(PAGE - 1);
    if last - base > u64::from(u32::MAX) {
        return Err(Error::TooFar(last - base));
    }

    let mut rows = Builder { base, rows: Vec::new(), end: None, entry: elf.entry, stats };
    let (mut from_eh, mut from_debug) = (eh.functions.iter().peekable(), debug.functions.iter().peekable());
    loop {
        let (next_eh, next_debug) = (from_eh.peek(), from_debug.peek());
        let eh_first = match (next_eh, next_debug) {
            (Some(eh), Some(debug)) => eh.start <= debug.start,
            (eh, None) if eh.is_none() => break,
            (eh, _) => eh.is_some(),
        };
        let Some(function) = (if eh_first { from_eh.next() } else { from_debug.next() }) else { break };
        // As unwinders that search .eh_frame_hdr see it: where functions overlap, the one that starts last counts.
        let next = [from_eh.peek(), from_debug.peek()].into_iter().flatten().map(|next| next.start).min();
        let end = next.map_or(function.end, |next| next.min(function.end));
        rows.stats.functions += 1;
        rows.stats.overlapping += u64::from(end < function.end);
        if elf.program && (function.start..end).contains(&elf.entry) {
            // Nobody has called it, whatever its rules say.
            rows.begin(function.start)?;
            rows.end(end);
            rows.push(function.start, |pc| (Row::end(pc), None))?;
        } else if eh_first {
            eh.compile::<M>(function, end, &mut rows)?;
        } else {
            debug.compile::<M>(function, end, &mut rows)?;
        }
    }
    if let Some(end) = rows.end {
        rows.gap(end, end)?;
    }
    let code = |pc: u32, length: u32| {
        let offset = elf.offset_of_vaddr(base + u64::from(pc))?;
        data.read_bytes_at(offset, length.into()).ok().map(<[u8]>::to_vec)
    };
    M::correct(&mut rows.rows, &code);
    Ok(rows.finish())
}

/// A section's bytes; none where there is no such section.
fn bytes<'data, R: ReadRef<'data>>(
    name: &'static str,
    place: Option<FrameBytes>,
    data: R,
) -> Result<(&'data [u8], FrameBytes), Error> {
    let Some(place) = place else {
        return Ok((&[], FrameBytes { address: 0, offset: 0, size: 0, zero_ends: false }));
    };
    // Without a section header the size is that of the rest of the segment, which may be anything.
    let size = if place.zero_ends { place.size.min(MAX_FRAME_BYTES) } else { place.size };
    if size > MAX_FRAME_BYTES {
        return Err(Error::TooMany { what: "bytes of frame information", limit: MAX_FRAME_BYTES });
    }
    Ok((data.read_bytes_at(place.offset, size).map_err(|()| Error::Truncated(name))?, place))
}

/// Whether any of the sorted functions shares an address with this one. Overlaps among themselves do not matter: the one
/// that starts last below the end is the only one that counts there.
fn overlaps(sorted: &[Function], function: &Function) -> bool {
    let below = sorted.partition_point(|other| other.start < function.end);
    sorted[..below].last().is_some_and(|other| other.end > function.start)
}

/// Rows in the making. Addresses only grow.
pub(crate) struct Builder {
    base: u64,
    rows: Vec<Row>,
    /// Where the last function ended.
    end: Option<u64>,
    /// Where the program starts, 0 if it does not.
    entry: u64,
    stats: Stats,
}

impl Builder {
    /// A function starts: a hole before it gets its row.
    pub fn begin(&mut self, start: u64) -> Result<(), Error> {
        match self.end {
            Some(end) if end < start => self.gap(end, start),
            _ => Ok(()),
        }
    }

    /// Rules that hold from an address on. A row that repeats the one before is left out.
    pub fn push(&mut self, address: u64, row: impl FnOnce(u32) -> (Row, Option<Loss>)) -> Result<(), Error> {
        // Every function lies within 4 GiB of the base, and addresses lie within their function.
        let (row, loss) = row((address - self.base) as u32);
        if self.rows.last().is_some_and(|last| last.same_rules(&row)) {
            return Ok(());
        }
        if self.rows.len() == MAX_ROWS {
            return Err(Error::TooMany { what: "rows", limit: MAX_ROWS as u64 });
        }
        if let Some(loss) = loss {
            self.stats.lose(loss);
        }
        self.rows.push(row);
        Ok(())
    }

    /// The function that began last ends.
    pub fn end(&mut self, end: u64) {
        self.end = Some(end);
    }

    /// A hole. Where the program starts in one, as in glibc's loader, nobody has called it: the stack ends there.
    fn gap(&mut self, from: u64, to: u64) -> Result<(), Error> {
        self.stats.gaps += 1;
        if from != self.entry || from == to {
            self.push(from, |pc| (Row::no_rule(pc), None))?;
        }
        if (from..to).contains(&self.entry) {
            let end = self.entry.saturating_add(ENTRY).min(to);
            self.push(self.entry, |pc| (Row::end(pc), None))?;
            if end < to {
                self.push(end, |pc| (Row::no_rule(pc), None))?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Table {
        for pair in self.rows.windows(2) {
            let bytes = u64::from(pair[1].pc - pair[0].pc);
            match pair[0].cfa() {
                Cfa::NoRule => continue,
                Cfa::Unsupported => self.stats.unsupported += bytes,
                _ => {}
            }
            self.stats.covered += bytes;
        }
        self.rows.shrink_to_fit();
        Table { base: self.base, rows: self.rows, stats: self.stats }
    }
}
