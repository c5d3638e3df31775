//! Formats a snapshot for Prometheus: as OpenMetrics 1.0 or in the older Prometheus format, depending on what the
//! scraper accepts.
//!
//! Written by hand rather than with a metrics library: all values are already in one snapshot and are written once per
//! scrape. A registry would be a second copy of them to keep in sync.

mod accept;
mod bounds;
mod device;
mod ended;
mod health;
mod measured;
mod other;
mod own;
mod process;
mod selection;
mod text;

use std::time::Duration;

use self::selection::Selection;
pub use self::{
    accept::Format,
    measured::{Measured, measured},
    selection::Limits,
    text::{Definition, Kind},
};
use crate::snapshot::Snapshot;

/// Formats snapshots for scrapers. It remembers which processes, kernels and functions have their own series, so that
/// counters never decrease.
pub struct Exposition {
    selection: Selection,
    /// The length of the last text, as an estimate for the next.
    length: usize,
}

impl Exposition {
    /// Creates an exposition with these limits.
    pub fn new(limits: Limits) -> Self {
        Self { selection: Selection::new(limits), length: 0 }
    }

    /// Records the processes that end in a snapshot which is not scraped, such as the console's: their last values are
    /// part of the next scrape.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        self.selection.keep_ended(&snapshot.processes, snapshot.time_ns);
    }

    /// Formats a whole scrape. `took` is how long the snapshot took to gather. Ended processes are included for some
    /// minutes.
    pub fn render(&mut self, snapshot: &Snapshot, format: Format, took: Duration) -> String {
        let selected = self.selection.select(&snapshot.processes, snapshot.time_ns);
        let mut text = String::with_capacity(self.length + self.length / 8 + (1 << 12));
        health::write(snapshot, selected.summed, took, format, &mut text);
        process::write(&selected, snapshot.kinds, format, &mut text);
        device::write(snapshot, format, &mut text);
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        self.length = text.len();
        text
    }
}

/// Returns every family that can be in a scrape.
pub fn definitions() -> impl Iterator<Item = &'static Definition> {
    [health::ALL, process::ALL, device::ALL].into_iter().flatten().copied()
}
