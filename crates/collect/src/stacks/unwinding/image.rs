//! Which code a process image has mapped, and had before.

use std::time::{Duration, Instant};

use symbols::FileId;

/// The most replaced modules of an image that are remembered.
const MOST_REPLACED: usize = 16;

/// The code of one process image.
#[derive(Default)]
pub struct Image {
    /// Sorted by start, disjoint.
    pub modules: Vec<Module>,
    /// What other files have taken the place of, the last ones.
    pub replaced: Vec<Replaced>,
    pub gone: bool,
    /// When the kernel's walker got them last.
    pub published: Option<Instant>,
}

impl Image {
    /// Another file takes these addresses. The last modules that had to go are remembered.
    pub fn replace(&mut self, start: u64, end: u64, time: u64) {
        let gone = self.modules.extract_if(.., |m| m.end > start && m.start < end);
        self.replaced.extend(gone.map(|module| Replaced { module, until: time }));
        self.replaced.drain(..self.replaced.len().saturating_sub(MOST_REPLACED));
    }

    /// Its many modules were published a moment ago. Publishing costs time and, for two seconds, a second range of the walker's
    /// map, so that a process that maps code all the time would use up both.
    pub fn is_published_often(&self) -> bool {
        const MANY: usize = 1024;
        const EACH: Duration = Duration::from_micros(50);
        let pause = EACH * self.modules.len() as u32;
        self.modules.len() > MANY && self.published.is_some_and(|published| published.elapsed() < pause)
    }
}

/// A module that another has replaced.
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
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one mapping over many modules leaves no more of them behind than are kept.
    #[test]
    fn replaced_modules_are_bounded() {
        let module = |start: u64| Module { start, end: start + 1, offset: 0, file: None };
        let mut image = Image { modules: (0..1_000).map(module).collect(), ..Image::default() };
        image.replace(0, 900, 7);
        assert_eq!((image.modules.len(), image.replaced.len()), (100, MOST_REPLACED));
        assert_eq!(image.replaced.last().map(|replaced| replaced.module.start), Some(899), "the last ones");
    }
}
