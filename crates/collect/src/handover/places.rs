//! The functions that hand work over and do it, in a file and in the memory of a process.

use std::ops::Range;

use elf::{Segments, Symbol};
use model::event::{ADDRESS, Frame};
use symbols::FileId;

/// The most bytes of a function whose instructions are searched.
pub const LARGEST: u64 = 1 << 16;

/// A function of a file.
pub struct Function {
    /// Its virtual addresses.
    addresses: Range<u64>,
    /// Its entry in the file.
    pub offset: u64,
}

impl Function {
    /// Finds a symbol's function; `None` if the file does not contain it.
    pub fn of(symbol: &Symbol, segments: &Segments) -> Option<Self> {
        let (offset, _) = segments.offset_of_vaddr(symbol.address)?;
        // Of a function without a size, only its first byte is known: no frame is in it.
        let end = symbol.address.checked_add(symbol.size.max(1))?;
        Some(Self { addresses: symbol.address..end, offset })
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> u64 {
        self.addresses.end - self.addresses.start
    }

    /// Returns its addresses in a mapping whose addresses are larger by `bias`.
    pub fn moved(&self, bias: u64) -> Range<u64> {
        self.addresses.start.wrapping_add(bias)..self.addresses.end.wrapping_add(bias)
    }
}

/// The functions in the memory of a process.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Hands work over and waits for it.
    pub hands: Vec<Range<u64>>,
    /// Do work that was handed over.
    pub works: Vec<Range<u64>>,
    /// The files that they are in.
    pub files: Vec<FileId>,
}

impl Places {
    /// Whether all of these are known.
    pub fn has(&self, more: &Self) -> bool {
        let has = |known: &[Range<u64>], more: &[Range<u64>]| more.iter().all(|range| known.contains(range));
        has(&self.hands, &more.hands) && has(&self.works, &more.works)
    }

    /// Adds more, which are in this file.
    pub fn add(&mut self, more: Self, file: FileId) {
        self.hands.extend(more.hands);
        self.works.extend(more.works);
        if !self.files.contains(&file) {
            self.files.push(file);
        }
    }

    /// Whether a stack is that of a thread that does work handed to it.
    pub fn work(&self, frames: &[Frame]) -> bool {
        let inside = |ranges: &[Range<u64>], address| ranges.iter().any(|range| range.contains(&address));
        let outermost = frames.iter().rev().find_map(|frame| match frame {
            Frame::User(address) if inside(&self.works, address & ADDRESS) => Some(true),
            Frame::User(address) if inside(&self.hands, address & ADDRESS) => Some(false),
            _ => None,
        });
        outermost.unwrap_or(false)
    }
}
