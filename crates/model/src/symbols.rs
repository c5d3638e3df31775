//! The names of frames. An address has one meaning while the same file is mapped there. When another file replaces it
//! (one plugin is unloaded, the next is loaded), the address has a new meaning from then on.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::{Frame, NamedFrame, ProcessId, Symbol};

/// The time from which the names are valid, and the names.
type Since = (u64, Arc<[NamedFrame]>);

/// Names by image, frame and time.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Sorted by time; nearly always one entry.
    by_frame: FxHashMap<(ProcessId, Frame), Vec<Since>>,
}

impl Symbols {
    /// Adds a symbol; replaces one with the same start time.
    pub fn add(&mut self, symbol: Symbol) {
        let names = self.by_frame.entry((symbol.process, symbol.frame)).or_default();
        let place = names.partition_point(|(since, _)| *since < symbol.since);
        let new = (symbol.since, symbol.names.into());
        match names.get_mut(place).filter(|(since, _)| *since == symbol.since) {
            Some(known) => *known = new,
            None => names.insert(place, new),
        }
    }

    /// Returns the names of a frame of an image at some time, outermost first. Before the start of the first entry, the
    /// first applies: mapping records may be timestamped slightly after a stack that uses them.
    pub fn at(&self, process: ProcessId, frame: Frame, time: u64) -> Option<&Arc<[NamedFrame]>> {
        let names = self.by_frame.get(&(process, frame))?;
        let after = names.partition_point(|(since, _)| *since <= time);
        names.get(after.saturating_sub(1)).map(|(_, names)| names)
    }

    /// Whether a frame has any name.
    pub fn knows(&self, process: ProcessId, frame: Frame) -> bool {
        self.by_frame.contains_key(&(process, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::FrameKind;

    fn symbol(since: u64, name: &str) -> Symbol {
        let names = vec![NamedFrame { kind: FrameKind::Native, name: name.into(), module: "".into() }];
        Symbol { process: ProcessId(1), frame: Frame::User(7), since, names }
    }

    /// Check that each name is valid until the next, the first also before its time, and that a repeated symbol
    /// replaces the old one.
    #[test]
    fn each_name_is_valid_until_the_next() {
        let mut symbols = Symbols::default();
        for (since, name) in [(20, "second"), (10, "first"), (20, "other")] {
            symbols.add(symbol(since, name));
        }
        let at = |time| symbols.at(ProcessId(1), Frame::User(7), time).map(|names| names[0].name.to_string());
        assert_eq!(
            [5, 10, 19, 20, 99].map(|time| at(time).expect("named")),
            ["first", "first", "first", "other", "other"]
        );
        assert_eq!(symbols.at(ProcessId(2), Frame::User(7), 10), None);
        assert!(symbols.knows(ProcessId(1), Frame::User(7)) && !symbols.knows(ProcessId(1), Frame::Kernel(7)));
    }
}
