//! Reads the mappings of followed processes again after mapping records were lost: a program of anyone that maps code
//! without pause can fill the rings, which all processes share.

use std::time::Instant;

use bpf::Mappings;

use super::parts::{Collector, Rescan};
use crate::{process::procfs, sink::Sink};

/// The time between two scans is at least this multiple of the time that a scan takes.
const REST: u32 = 20;

impl<S: Sink> Collector<S> {
    /// Adds mappings whose records were lost.
    pub(super) fn rescan(&mut self) {
        let lost = self.mappings.as_ref().map_or(0, Mappings::lost);
        let begun = Instant::now();
        if lost == self.rescan.lost || self.rescan.next.is_some_and(|next| begun < next) {
            return;
        }
        for (pid, image) in self.images.all() {
            for mapping in procfs::mappings(pid, image) {
                if !self.unwinding.knows(&mapping) {
                    self.mapped(&mapping, pid);
                }
            }
        }
        self.rescan = Rescan { lost, next: Some(Instant::now() + begun.elapsed() * REST) };
    }
}
