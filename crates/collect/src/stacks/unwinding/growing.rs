//! A file's table that grows function by function, as stacks need it.

use std::cell::Cell;

use bpf::Place;
use elf::Segments;
use unwind::{Partial, Row};

use super::{image::Wanted, tables::Pieces};

/// The rows of a file so far.
#[derive(Default)]
pub struct Growing {
    /// The file's segments and the base of its rows, once it has been read.
    file: Option<(Segments, u64)>,
    table: Partial,
    /// The kernel's copy.
    pub place: Option<Place>,
    /// The kernel's copy has fewer functions.
    pub unpublished: bool,
    /// Functions are being compiled.
    pub busy: bool,
    /// The last round in which a stack used it.
    pub used: Cell<u64>,
}

/// What is known about an address.
pub enum Lookup {
    Row(Row),
    /// The file has no rule for it, and never will.
    NoRule,
    /// The function has to be compiled first.
    Unknown,
}

impl Growing {
    /// Adds functions.
    pub fn add(&mut self, pieces: Pieces) {
        for piece in &pieces.pieces {
            self.table.add(piece);
        }
        self.file = Some((pieces.segments, pieces.base));
        self.unpublished = true;
        self.busy = false;
    }

    /// Returns the number of rows in memory: its own, and the kernel's copy.
    pub fn kept(&self) -> usize {
        if self.file.is_some() { 2 * self.rows().len() } else { 0 }
    }

    pub fn rows(&self) -> &[Row] {
        self.table.rows()
    }

    pub fn find(&self, wanted: &Wanted) -> Lookup {
        let Some((segments, base)) = &self.file else { return Lookup::Unknown };
        let address = wanted.in_file(segments).and_then(|address| address.checked_sub(*base));
        match address.map(u32::try_from) {
            Some(Ok(pc)) => self.table.find(pc).map_or(Lookup::Unknown, Lookup::Row),
            _ => Lookup::NoRule,
        }
    }

    /// Returns what the kernel needs to know of a mapping: what to subtract from an address, and the rows; `None` if
    /// there are none yet.
    pub fn code(&self, start: u64, offset: u64) -> Option<(u64, Option<Place>)> {
        let (segments, base) = self.file.as_ref()?;
        let place = self.place?;
        Some(segments.bias(start, offset).map_or((0, None), |bias| (bias.wrapping_add(*base), Some(place))))
    }
}
