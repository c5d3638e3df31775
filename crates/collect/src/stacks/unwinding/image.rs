//! The code that a process image has mapped, now and before.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use elf::Segments;
use symbols::FileId;

/// The most replaced modules remembered per image.
const MOST_REPLACED: usize = 16;

/// The code of one process image.
#[derive(Default)]
pub struct Image {
    /// Sorted by start, disjoint. A forked image shares them until one of the two changes.
    pub modules: Arc<Vec<Module>>,
    /// The last modules that were replaced by other files.
    pub replaced: Vec<Replaced>,
    pub gone: bool,
    /// When they were last published to the kernel's walker.
    pub published: Option<Instant>,
}

impl Image {
    /// Removes the modules at addresses that another file takes over. The last ones are remembered.
    pub fn replace(&mut self, start: u64, end: u64, time: u64) {
        let first = self.modules.partition_point(|m| m.end <= start);
        let count = self.modules[first..].partition_point(|m| m.start < end);
        if count == 0 {
            return;
        }
        let gone = Arc::make_mut(&mut self.modules).drain(first..first + count);
        self.replaced.extend(gone.map(|module| Replaced { module, until: time }));
        self.replaced.drain(..self.replaced.len().saturating_sub(MOST_REPLACED));
    }

    /// Whether its many modules were published a moment ago. Publishing costs time and, for two seconds, a second range
    /// of the walker's map, so a process that maps code all the time would use up both.
    pub fn is_published_often(&self) -> bool {
        const MANY: usize = 1024;
        const EACH: Duration = Duration::from_micros(50);
        let pause = EACH * self.modules.len() as u32;
        self.modules.len() > MANY && self.published.is_some_and(|published| published.elapsed() < pause)
    }
}

/// A module that was replaced by another.
#[derive(Clone)]
pub struct Replaced {
    pub module: Module,
    pub until: u64,
}

/// A mapping of code.
#[derive(Clone)]
pub struct Module {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub file: Option<FileId>,
}

impl Module {
    /// Returns the one of sorted modules that contains an address.
    pub fn around(modules: &[Module], address: u64) -> Option<&Module> {
        let below = modules.partition_point(|m| m.start <= address);
        modules.get(below.checked_sub(1)?).filter(|m| m.holds(address))
    }

    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A code address of a process, and the mapping that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    start: u64,
    offset: u64,
    address: u64,
}

sandbox::plain! { Wanted { start, offset, address } }

impl Wanted {
    pub fn new(module: &Module, address: u64) -> Self {
        Self { start: module.start, offset: module.offset, address }
    }

    /// Returns the virtual address in the file.
    pub fn in_file(&self, segments: &Segments) -> Option<u64> {
        Some(self.address.wrapping_sub(segments.bias(self.start, self.offset)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one mapping over many modules keeps only a bounded number of them.
    #[test]
    fn replaced_modules_are_bounded() {
        let module = |start: u64| Module { start, end: start + 1, offset: 0, file: None };
        let mut image = Image { modules: Arc::new((0..1_000).map(module).collect()), ..Image::default() };
        image.replace(0, 900, 7);
        assert_eq!((image.modules.len(), image.replaced.len()), (100, MOST_REPLACED));
        assert_eq!(image.replaced.last().map(|replaced| replaced.module.start), Some(899), "the last ones");
    }
}
