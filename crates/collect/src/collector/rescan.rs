//! Reads the mappings of followed processes again after mapping records were lost: a program of anyone that maps code
//! without pause can fill the rings, which all processes share.
//!
//! A scan of all processes goes on over several rounds, because a single program can have mapped thousands of files, and
//! the others must not wait for it. Processes whose stacks cannot be walked come first.

use std::{
    collections::HashMap,
    os::fd::RawFd,
    time::{Duration, Instant},
};

use bpf::{Mappings, Record};
use model::event::{Mapping, ProcessId};
use unwind::Ended;

use super::parts::Collector;
use crate::{process::procfs, sink::Sink};

/// The time between two scans, of all processes or of one, is at least this multiple of the time that a scan takes.
const REST: u32 = 20;
/// A round scans no further process after this time.
const STEP: Duration = Duration::from_millis(5);

/// When the mappings of followed processes are read again.
#[derive(Debug, Default)]
pub(super) struct Rescan {
    /// The number of lost mapping records when the last scan of all processes began.
    lost: u64,
    /// The processes that it has not reached yet.
    left: Vec<(u32, ProcessId)>,
    /// How long it has taken so far.
    spent: Duration,
    /// No other one begins before then.
    next: Option<Instant>,
    /// The last scan of each process.
    scanned: HashMap<ProcessId, Scanned>,
    /// Processes with stacks that the kernel could not walk, since the last round.
    suspects: HashMap<ProcessId, u32>,
}

#[derive(Debug)]
struct Scanned {
    /// Records that are not newer are known.
    time: u64,
    /// The number of lost mapping records.
    lost: u64,
    /// Not again before then.
    next: Instant,
}

impl Rescan {
    /// Notes the process of a stack that ended at an unknown address.
    pub fn suspect(&mut self, record: &Record) {
        let (image, pid) = match record {
            Record::RawStack(raw) => (raw.image, raw.pid),
            Record::Stack(stack) if stack.result == Ended::NoMapping as u8 => (stack.image, stack.pid),
            _ => return,
        };
        self.suspects.insert(ProcessId(image), pid);
    }

    pub fn died(&mut self, image: ProcessId) {
        self.scanned.remove(&image);
    }
}

impl<S: Sink> Collector<S> {
    /// Adds mappings whose records were lost. `waiting`: the connections of processes that wait for the reply to their hello; they
    /// may end before the scan of all processes reaches them. Returns whether that scan goes on.
    pub(super) fn rescan(&mut self, waiting: &[RawFd]) -> bool {
        let suspects = std::mem::take(&mut self.rescan.suspects);
        let lost = self.mappings.as_ref().map_or(0, Mappings::lost);
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
            if begun.elapsed() < STEP && !self.rescan.scanned.get(&image).is_some_and(rests) {
                self.scan(pid, image, lost, procfs::first_mappings);
            }
        }
        self.scan_all(lost)
    }

    fn scan_all(&mut self, lost: u64) -> bool {
        let begun = Instant::now();
        if self.rescan.left.is_empty() {
            if lost == self.rescan.lost || self.rescan.next.is_some_and(|next| begun < next) {
                return false;
            }
            (self.rescan.lost, self.rescan.spent, self.rescan.left) = (lost, Duration::ZERO, self.images.all());
        }
        while begun.elapsed() < STEP
            && let Some((pid, image)) = self.rescan.left.pop()
        {
            self.scan(pid, image, lost, procfs::mappings);
        }
        self.rescan.spent += begun.elapsed();
        let over = self.rescan.left.is_empty();
        if over {
            self.rescan.next = Some(Instant::now() + self.rescan.spent * REST);
        }
        !over
    }

    /// Adds a mapping from the kernel's record of it, unless a scan was later than that: what it found at these addresses
    /// says more than the record.
    pub(super) fn mapped_by_record(&mut self, mapping: &Mapping, pid: u32) {
        let scanned = self.rescan.scanned.get(&mapping.process).is_some_and(|last| mapping.time <= last.time);
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
        self.rescan.scanned.insert(image, Scanned { time, lost, next });
    }
}
