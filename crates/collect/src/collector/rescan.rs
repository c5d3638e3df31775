//! Reads the mappings of followed processes again after mapping records were lost: a program of anyone that maps code
//! without pause can fill the rings, which all processes share.

use std::{os::fd::RawFd, time::Instant};

use bpf::Mappings;
use model::event::{Mapping, ProcessId};

use super::parts::Collector;
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
            self.add_unknown(pid, image, procfs::mappings);
        }
        (self.rescan.lost, self.rescan.next) = (lost, Some(Instant::now() + begun.elapsed() * REST));
    }

    /// Adds the mappings of processes that wait for the reply to their hello, if their records may have been lost: such a process
    /// may end before the next scan.
    pub(super) fn scan_waiting(&mut self, waiting: &[RawFd]) {
        if self.mappings.as_ref().is_some_and(|mappings| mappings.lost() == 0) {
            return;
        }
        let Some(sessions) = &self.sessions else { return };
        for (pid, image) in sessions.processes(waiting) {
            self.add_unknown(procfs::in_proc(pid), image, procfs::first_mappings);
        }
    }

    /// Adds a mapping from the kernel's record of it, unless it was read before its record arrived: that says more, such as the
    /// build id, but it must not count as another file.
    pub(super) fn mapped_by_record(&mut self, mapping: &Mapping, pid: u32) {
        let scanned = self.rescan.scanned.get(&mapping.process).is_some_and(|time| mapping.time <= *time);
        if !(scanned && self.unwinding.knows(mapping)) {
            self.mapped(mapping, pid);
        }
    }

    fn add_unknown(&mut self, pid: u32, image: ProcessId, read: fn(u32, ProcessId) -> Vec<Mapping>) {
        let now = bpf::now();
        for mapping in read(pid, image) {
            if !self.unwinding.knows(&mapping) {
                self.mapped(&mapping, pid);
            }
        }
        self.rescan.scanned.insert(image, now);
    }
}
