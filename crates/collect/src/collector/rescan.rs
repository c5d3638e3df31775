//! Reads the mappings of followed processes again after mapping records were lost: a program of anyone that maps code
//! without pause can fill the rings, which all processes share.
//!
//! A scan of all processes goes on over several rounds, because a single program can have mapped thousands of files, and
//! the others must not wait for it. Processes whose stacks cannot be walked come first.

use std::{
    os::fd::RawFd,
    time::{Duration, Instant},
};

use bpf::Mappings;
use model::event::{Mapping, ProcessId};

use super::parts::Collector;
use crate::{
    process::{procfs, scans::Scanned},
    sink::Sink,
};

/// The time between two scans, of all processes or of one, is at least this multiple of the time that a scan takes.
const REST: u32 = 20;
/// A round scans no further process after this time.
const STEP: Duration = Duration::from_millis(5);

impl<S: Sink> Collector<S> {
    /// Returns the number of mappings that were lost since the start.
    pub fn lost_mappings(&self) -> u64 {
        self.mappings.as_ref().map_or(0, Mappings::lost) + self.images.dropped()
    }

    /// Adds mappings whose records were lost. `waiting`: the connections of processes that wait for the reply to their hello; they
    /// may end before the scan of all processes reaches them. Returns whether that scan goes on.
    pub(super) fn rescan(&mut self, waiting: &[RawFd]) -> bool {
        let suspects = std::mem::take(&mut self.scans.suspects);
        let lost = self.lost_mappings();
        if lost == 0 {
            return false;
        }
        let waiting = self.sessions.as_ref().map(|sessions| sessions.processes(waiting)).unwrap_or_default();
        for (pid, image) in waiting {
            self.scan(pid, image, lost, procfs::first_mappings);
        }
        let begun = Instant::now();
        for (image, pid) in suspects {
            let rests = |last: &Scanned| last.lost == lost || begun < last.next;
            if begun.elapsed() < STEP && !self.scans.scanned.get(&image).is_some_and(rests) {
                self.scan(pid, image, lost, procfs::first_mappings);
            }
        }
        self.scan_all(lost)
    }

    fn scan_all(&mut self, lost: u64) -> bool {
        let begun = Instant::now();
        if self.scans.left.is_empty() {
            if lost == self.scans.lost || self.scans.next.is_some_and(|next| begun < next) {
                return false;
            }
            (self.scans.lost, self.scans.spent, self.scans.left) = (lost, Duration::ZERO, self.images.all());
        }
        while begun.elapsed() < STEP
            && let Some((pid, image)) = self.scans.left.pop()
        {
            self.scan(pid, image, lost, procfs::mappings);
        }
        self.scans.spent += begun.elapsed();
        let over = self.scans.left.is_empty();
        if over {
            self.scans.next = Some(Instant::now() + self.scans.spent * REST);
        }
        !over
    }

    /// Adds a mapping from the kernel's record of it, unless a scan was later than that: what it found at these addresses
    /// says more than the record.
    pub(super) fn mapped_by_record(&mut self, mapping: &Mapping, pid: u32) {
        let scanned = self.scans.scanned.get(&mapping.process).is_some_and(|last| mapping.time <= last.time);
        if !(scanned && self.unwinding.has_code_at(mapping)) {
            self.mapped(mapping, pid);
        }
    }

    fn scan(&mut self, pid: u32, image: ProcessId, lost: u64, read: fn(u32, ProcessId) -> Vec<Mapping>) {
        if self.images.current(pid) != Some(image) {
            return;
        }
        let (begun, time) = (Instant::now(), bpf::now());
        for mapping in read(procfs::in_proc(pid), image) {
            if !self.unwinding.knows(&mapping) {
                self.mapped(&mapping, pid);
            }
        }
        let next = Instant::now() + begun.elapsed() * REST;
        self.scans.scanned.insert(image, Scanned { time, lost, next });
    }
}
