//! Searches for libraries again after mapping records were lost: a process that loaded one meanwhile would not be
//! watched.

use std::time::{Duration, Instant};

use collect::{Collector, process::procfs, sink::Sink as _};

use super::state::State;

/// The minimum time between two scans of all processes; longer if a scan takes long.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);
const REST: u32 = 20;
/// The longest time that a scan blocks the main loop, except for the process being scanned.
const SLICE: Duration = Duration::from_millis(5);

/// A scan of all processes, a few at a time.
#[derive(Debug)]
pub struct Rescan {
    left: Vec<u32>,
    spent: Duration,
    next: Instant,
    /// The number of lost records when the last scan began.
    lost: u64,
}

impl Rescan {
    /// Creates a scan that is not due yet.
    pub fn new() -> Self {
        Self { left: Vec::new(), spent: Duration::ZERO, next: Instant::now(), lost: 0 }
    }

    /// Starts a scan if one is due, or continues it.
    pub fn advance(&mut self, collector: &mut Collector<State>) {
        let lost_mappings = collector.lost_mappings();
        let Collector { recorder, sink, trace: Some(trace), pythons, .. } = collector else { return };
        if !trace.all {
            return;
        }
        let begun = Instant::now();
        if self.left.is_empty() {
            let lost = lost_mappings + trace.overlooked;
            if lost == self.lost || begun < self.next {
                return;
            }
            *self = Self { left: procfs::all(), spent: Duration::ZERO, next: begun, lost };
        }
        while let Some(pid) = self.left.pop() {
            let uses_cuda = trace.watch_process(pid, recorder, &mut |event| sink.push(&event));
            pythons.iter_mut().filter(|_| uses_cuda).for_each(|pythons| pythons.loaded(pid));
            if begun.elapsed() >= SLICE {
                break;
            }
        }
        self.spent += begun.elapsed();
        if self.left.is_empty() {
            self.next = Instant::now() + SCAN_INTERVAL.max(self.spent * REST);
        }
    }
}
