//! Which processes' mappings are read again after mapping records were lost, and when.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bpf::Record;
use model::event::ProcessId;
use unwind::Ended;

/// The scans of the mappings of followed processes.
#[derive(Debug, Default)]
pub struct Scans {
    /// The number of lost mapping records when the last scan of all processes began.
    pub lost: u64,
    /// The processes that it has not reached yet.
    pub left: Vec<(u32, ProcessId)>,
    /// How long it has taken so far.
    pub spent: Duration,
    /// No other one begins before then.
    pub next: Option<Instant>,
    /// The last scan of each process.
    pub scanned: HashMap<ProcessId, Scanned>,
    /// Processes with stacks that the kernel could not walk, since the last round.
    pub suspects: HashMap<ProcessId, u32>,
}

/// One scan of a process.
#[derive(Debug)]
pub struct Scanned {
    /// Records that are not newer are known.
    pub time: u64,
    /// The number of lost mapping records.
    pub lost: u64,
    /// Not again before then.
    pub next: Instant,
}

impl Scans {
    /// Notes the process of a stack that ended at an unknown address.
    pub fn suspect(&mut self, record: &Record) {
        let (image, pid) = match record {
            Record::RawStack(raw) => (raw.image, raw.pid),
            Record::Stack(stack) if stack.result == Ended::NoMapping as u8 => (stack.image, stack.pid),
            _ => return,
        };
        self.suspects.insert(ProcessId(image), pid);
    }

    /// Handles the end of an image.
    pub fn died(&mut self, image: ProcessId) {
        self.scanned.remove(&image);
    }
}
