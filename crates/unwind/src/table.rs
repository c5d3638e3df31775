//! A file's rows: the functions of its sections, in address order, compiled one after another.

use elf::{Bytes as FileBytes, EM_X86_64, Elf};
use gimli::{DebugFrame, EhFrame};

use crate::builder::Builder;
use crate::frames::{Flavour, Frames, Function, reader};
use crate::places;
use crate::program::{Bytes, Machine};
use crate::x86_64::X86_64;
use crate::{Error, Row, Stats};

/// The maximum number of rows of a table: what 24 steps of binary search can distinguish (`UNWIND_MAX_ROWS` in
/// `rows.h`).
pub const MAX_ROWS: usize = 1 << 23;
/// The maximum number of functions of a file: several times that of the largest CUDA libraries.
pub const MAX_FUNCTIONS: usize = 1 << 22;
/// The maximum size of a frame section, in bytes.
const MAX_FRAME_BYTES: u64 = 256 << 20;

/// Limits on the size of a table and of its input.
#[derive(Clone, Copy, Debug)]
struct Limits {
    frame_bytes: u64,
    functions: usize,
    rows: usize,
}

impl Limits {
    /// Returns limits such that building the table takes at most `memory` bytes: half of it for the sections, a quarter
    /// each for the functions and for their rows.
    fn within(memory: u64) -> Self {
        let quarter = usize::try_from(memory / 4).unwrap_or(usize::MAX);
        Self {
            frame_bytes: MAX_FRAME_BYTES.min(memory / 2),
            functions: MAX_FUNCTIONS.min(quarter / size_of::<Function>()),
            rows: MAX_ROWS.min(quarter / size_of::<Row>()),
        }
    }
}

const PAGE: u64 = 4096;

/// A file's rows, sorted by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The base of the rows' addresses: the page of the lowest address that has a rule.
    pub base: u64,
    /// One row for each address where the rules change. The last one ends the last function.
    pub rows: Vec<Row>,
    /// Statistics of the compilation.
    pub stats: Stats,
}

impl Table {
    /// Compiles the rows of a file in at most `memory` bytes, apart from some fixed limits. A file without frame
    /// sections has an empty table.
    pub fn read<B: FileBytes + ?Sized>(elf: &Elf, bytes: &B, memory: u64) -> Result<Table, Error> {
        check_machine(elf)?;
        compile::<X86_64, B>(elf, bytes, Limits::within(memory))
    }

    /// The same without a limit on memory.
    pub fn of<B: FileBytes + ?Sized>(bytes: &B) -> Result<Table, Error> {
        Table::read(&Elf::read(bytes)?, bytes, u64::MAX)
    }

    /// Returns the row for a virtual address of the file. None below the first function; above the last one, and in
    /// gaps, a row with [`crate::Cfa::NoRule`]. The same search is in `walk.h`.
    pub fn lookup(&self, address: u64) -> Option<Row> {
        Row::find(&self.rows, u32::try_from(address.checked_sub(self.base)?).ok()?)
    }
}

/// Checks that a file has code for which there are rows.
pub(crate) fn check_machine(elf: &Elf) -> Result<(), Error> {
    if elf.machine != EM_X86_64.0 || !elf.wide {
        return Err(Error::Machine(elf.machine));
    }
    if elf.segments.0.is_empty() {
        return Err(Error::NotLoadable);
    }
    Ok(())
}

fn compile<M: Machine, B: FileBytes + ?Sized>(elf: &Elf, data: &B, limits: Limits) -> Result<Table, Error> {
    let mut stats = Stats::default();
    let (eh_place, debug_place) = (places::eh_frame(elf, data), places::debug_frame(elf));
    let eh_bytes = places::read(data, ".eh_frame", eh_place, limits.frame_bytes)?;
    let left = limits.frame_bytes - eh_bytes.len() as u64;
    let debug_bytes = places::read(data, ".debug_frame", debug_place, left)?;
    let section: EhFrame<Bytes<'_>> = reader(&eh_bytes).into();
    let eh_place = eh_place.unwrap_or_default();
    let eh = Frames::new::<M>(section, Flavour::EhFrame, &eh_bytes, &eh_place, elf, limits.functions, &mut stats)?;
    let mut section: DebugFrame<Bytes<'_>> = reader(&debug_bytes).into();
    section.set_address_size(8);
    let debug_place = debug_place.unwrap_or_default();
    let mut debug =
        Frames::new::<M>(section, Flavour::DebugFrame, &debug_bytes, &debug_place, elf, limits.functions, &mut stats)?;
    // .eh_frame describes the code that runs; .debug_frame fills its gaps.
    debug.functions.retain(|function| !overlaps(&eh.functions, function));

    let first = [eh.functions.first(), debug.functions.first()].into_iter().flatten().map(|first| first.start).min();
    let last = [&eh.functions, &debug.functions].into_iter().flatten().map(|function| function.end).max();
    let (Some(first), Some(last)) = (first, last) else { return Ok(Table { stats, ..Table::default() }) };
    let base = first & !(PAGE - 1);
    if last - base > u64::from(u32::MAX) {
        return Err(Error::TooFar(last - base));
    }

    let mut rows = Builder::new(base, limits.rows, elf.entry, stats);
    let (mut from_eh, mut from_debug) = (eh.functions.iter().peekable(), debug.functions.iter().peekable());
    loop {
        let (next_eh, next_debug) = (from_eh.peek(), from_debug.peek());
        let eh_first = match (next_eh, next_debug) {
            (Some(eh), Some(debug)) => eh.start <= debug.start,
            (eh, None) if eh.is_none() => break,
            (eh, _) => eh.is_some(),
        };
        let Some(function) = (if eh_first { from_eh.next() } else { from_debug.next() }) else { break };
        // The same as unwinders that search .eh_frame_hdr: where functions overlap, the one that starts last counts.
        let next = [from_eh.peek(), from_debug.peek()].into_iter().flatten().map(|next| next.start).min();
        let end = next.map_or(function.end, |next| next.min(function.end));
        rows.stats.functions += 1;
        rows.stats.overlapping += u64::from(end < function.end);
        if elf.program && (function.start..end).contains(&elf.entry) {
            // It has no caller, whatever its rules say.
            rows.begin(function.start)?;
            rows.end(end);
            rows.push(function.start, |pc| (Row::end(pc), None))?;
        } else if eh_first {
            eh.compile::<M>(function, end, &mut rows)?;
        } else {
            debug.compile::<M>(function, end, &mut rows)?;
        }
    }
    rows.finish()?;
    let code = |pc: u32, length: u32| {
        let (offset, _) = elf.segments.offset_of_vaddr(base + u64::from(pc))?;
        elf::read(data, offset, length.into(), "code").ok()
    };
    M::correct(&mut rows.rows, &code);
    let (rows, stats) = rows.into_parts();
    Ok(Table { base, rows, stats })
}

/// Whether any of the sorted functions shares an address with this one. Overlaps among themselves do not matter: only
/// the one that starts last below the end counts there.
fn overlaps(sorted: &[Function], function: &Function) -> bool {
    let below = sorted.partition_point(|other| other.start < function.end);
    sorted[..below].last().is_some_and(|other| other.end > function.start)
}
