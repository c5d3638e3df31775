//! A snapshot as the text that Prometheus scrapes: OpenMetrics 1.0 or the older Prometheus format, by what the scraper
//! accepts.
//!
//! Written by hand rather than with a metrics library: all numbers lie in one snapshot already, and are written once per
//! scrape. A registry would be a second copy of them to keep in step.

mod accept;
mod bounds;
mod device;
mod ended;
mod health;
mod process;
mod selection;
mod text;

use std::time::Duration;

use self::selection::Selection;
pub use self::{
    accept::Format,
    selection::Limits,
    text::{Definition, Kind},
};
use crate::snapshot::Snapshot;

/// Writes snapshots for scrapers. It remembers which processes, kernels and functions have series of their own, so that
/// counters never fall.
pub struct Exposition {
    selection: Selection,
    /// The length of the last text: the next will be about as long.
    length: usize,
}

impl Exposition {
    /// With this many series at the most.
    pub fn new(limits: Limits) -> Self {
        Self { selection: Selection::new(limits), length: 0 }
    }

    /// Takes note of processes that end in a snapshot which is not scraped, as the console's: their last numbers are in
    /// the next scrape.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        self.selection.keep_ended(&snapshot.processes, snapshot.time_ns);
    }

    /// The whole text of a scrape. `took` is how long the snapshot took to gather. Processes that have ended are in it
    /// for some minutes.
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

/// Every family that can be in a scrape.
pub fn definitions() -> impl Iterator<Item = &'static Definition> {
    [health::ALL, process::ALL, device::ALL].into_iter().flatten().copied()
}
