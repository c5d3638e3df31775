//! The entries of one section: CIEs, with the common parts of their functions, and FDEs, one per function.
//!
//! Entries are walked by their lengths, one after another. So they cannot share bytes, every CIE is read once, and the
//! work is linear for any input. gimli parses each entry; one that it cannot parse is counted and skipped.

use gimli::{BaseAddresses, EndianSlice, LittleEndian, UnwindSection};

use elf::Elf;

use crate::builder::Builder;
use crate::places::FrameBytes;
use crate::program::{Bytes, Common, Machine, Program};
use crate::{Error, Loss, Row, Stats};

/// The addresses that one FDE covers, and its location.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub start: u64,
    pub end: u64,
    entry: u32,
    common: u32,
}

/// The two kinds of section, which differ in how an FDE refers to its CIE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    EhFrame,
    DebugFrame,
}

/// A section's CIEs and functions, the latter sorted and without duplicates.
pub(crate) struct Frames<'data, S> {
    section: S,
    bases: BaseAddresses,
    commons: Vec<(usize, Common<'data>)>,
    pub functions: Vec<Function>,
}

/// An entry's location and its second field.
struct Entry {
    start: usize,
    end: usize,
    /// The offset of an FDE's CIE; `None` for a CIE.
    cie: Option<usize>,
}

impl<'data, S: UnwindSection<Bytes<'data>>> Frames<'data, S> {
    /// Reads a section with at most `most` functions.
    pub fn new<M: Machine>(
        section: S,
        flavour: Flavour,
        bytes: &'data [u8],
        place: &FrameBytes,
        elf: &Elf,
        most: usize,
        stats: &mut Stats,
    ) -> Result<Self, Error> {
        let bases = BaseAddresses::default().set_eh_frame(place.place.address);
        let mut frames = Frames { section, bases, commons: Vec::new(), functions: Vec::new() };
        let mut at = 0;
        while at < bytes.len() {
            match entry(bytes, at, flavour) {
                Some(entry) if entry.end == entry.start + 4 => {
                    if place.zero_ends {
                        break;
                    }
                    // A terminator in the middle: crtend.o was linked before other objects.
                    at = entry.end;
                }
                Some(entry) => {
                    if frames.read::<M>(&entry, elf, stats).is_none() {
                        stats.malformed += 1;
                    }
                    if frames.functions.len() > most {
                        return Err(Error::TooMany { what: "functions", limit: most as u64 });
                    }
                    // A CIE takes ten times as much memory as a function.
                    if frames.commons.len() > most / 16 {
                        return Err(Error::TooMany { what: "CIEs", limit: most as u64 / 16 });
                    }
                    at = entry.end;
                }
                // The end of this entry is unknown, and so is the start of the next.
                None => {
                    stats.malformed += 1;
                    break;
                }
            }
        }
        // Stable: of two functions at one address the first in the file is kept.
        frames.functions.sort_by_key(|function| function.start);
        let before = frames.functions.len();
        frames.functions.dedup_by_key(|function| function.start);
        stats.overlapping += (before - frames.functions.len()) as u64;
        Ok(frames)
    }

    fn read<M: Machine>(&mut self, entry: &Entry, elf: &Elf, stats: &mut Stats) -> Option<()> {
        let Some(cie) = entry.cie else {
            let cie = self.section.cie_from_offset(&self.bases, entry.start.into()).ok()?;
            self.commons.push((entry.start, Common::new::<M, S>(&self.section, &self.bases, cie).ok()?));
            return Some(());
        };
        // A CIE precedes its FDEs; it is usually the last one.
        let index = match self.commons.last() {
            Some((offset, _)) if *offset == cie => self.commons.len() - 1,
            _ => self.commons.binary_search_by_key(&cie, |&(offset, _)| offset).ok()?,
        };
        let common = &self.commons[index].1;
        let fde =
            self.section.fde_from_offset(&self.bases, entry.start.into(), |_, _, _| Ok(common.cie.clone())).ok()?;
        let start = fde.initial_address();
        let end = start.checked_add(fde.len())?;
        if start == end {
            return Some(());
        }
        if elf.segments.executable_around(start, end).is_none() {
            stats.outside += 1;
            return Some(());
        }
        self.functions.push(Function { start, end, entry: entry.start as u32, common: index as u32 });
        Some(())
    }

    /// Runs one function's program and adds its rows below `end`.
    pub fn compile<M: Machine>(&self, function: &Function, end: u64, rows: &mut Builder) -> Result<(), Error> {
        rows.begin(function.start)?;
        rows.end(end);
        let common = &self.commons[function.common as usize].1;
        let entry = (function.entry as usize).into();
        let Ok(fde) = self.section.fde_from_offset(&self.bases, entry, |_, _, _| Ok(common.cie.clone())) else {
            return rows.push(function.start, |pc| (Row::unsupported(pc), Some(Loss::Program)));
        };
        let signal = fde.is_signal_trampoline();
        let instructions = fde.instructions(&self.section, &self.bases);
        let mut program = Program::new(&self.section, common, function.start, instructions);
        while let Some((location, state)) = program.next::<M>() {
            if location >= end {
                break;
            }
            rows.push(location, |pc| match &state {
                Ok(state) => M::row(pc, state, signal),
                Err(_) => (Row::unsupported(pc), Some(Loss::Program)),
            })?;
        }
        Ok(())
    }
}

/// Reads the length and the second field of the entry at `start`. A single zero length is an entry of 4 bytes.
fn entry(bytes: &[u8], start: usize, flavour: Flavour) -> Option<Entry> {
    let word = |at: usize| bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes);
    let long = |at: usize| bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes);
    let (body, length, wide) = match word(start)? {
        0 => return Some(Entry { start, end: start + 4, cie: None }),
        0xffff_ffff => (start + 12, usize::try_from(long(start + 4)?).ok()?, true),
        length => (start + 4, length as usize, false),
    };
    let end = body.checked_add(length).filter(|&end| end <= bytes.len())?;
    let cie = match (flavour, wide) {
        (Flavour::EhFrame, _) => match word(body)? {
            0 => None,
            // Points backwards from here. An impossible distance becomes an offset without a CIE.
            distance => Some(body.checked_sub(distance as usize).unwrap_or(usize::MAX)),
        },
        (Flavour::DebugFrame, false) => Some(word(body)?).filter(|&id| id != u32::MAX).map(|id| id as usize),
        (Flavour::DebugFrame, true) => {
            Some(long(body)?).filter(|&id| id != u64::MAX).map(|id| usize::try_from(id).unwrap_or(usize::MAX))
        }
    };
    Some(Entry { start, end, cie })
}

/// Returns the section in the form that gimli reads.
pub(crate) fn reader(bytes: &[u8]) -> Bytes<'_> {
    EndianSlice::new(bytes, LittleEndian)
}
