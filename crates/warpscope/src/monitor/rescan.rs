//! Looks for libraries again after records of mapped files were lost: a process that loaded one meanwhile would not be watched.

use std::time::{Duration, Instant};

use collect::{Collector, process::procfs, sink::Sink as _};

use super::state::State;

/// The least time between two scans of all processes; longer if a scan takes long.
const BETWEEN: Duration = Duration::from_secs(5);
const REST: u32 = 20;
/// The longest that a scan holds up the main loop, but for the one process that it is at.
const SLICE: Duration = Duration::from_millis(5);

/// A scan of all processes, a few at a time.
#[derive(Debug)]
pub struct Rescan {
    left: Vec<u32>,
    spent: Duration,
    next: Instant,
    /// What had been lost when the last scan began.
    lost: u64,
}

impl Rescan {
    /// Nothing was lost yet.
    pub fn new() -> Self {
        Self { left: Vec::new(), spent: Duration::ZERO, next: Instant::now(), lost: 0 }
    }

    /// Begins a scan if one is due, or continues it.
    pub fn go_on(&mut self, collector: &mut Collector<State>) {
        let Collector { recorder, sink, trace: Some(trace), mappings, .. } = collector else { return };
        if !trace.all {
            return;
        }
        let begun = Instant::now();
        if self.left.is_empty() {
            let lost = mappings.as_ref().map_or(0, bpf::Mappings::lost) + trace.overlooked;
            if lost == self.lost || begun < self.next {
                return;
            }
            *self = Self { left: procfs::all(), spent: Duration::ZERO, next: begun, lost };
        }
        while let Some(pid) = self.left.pop() {
            trace.watch_process(pid, recorder, &mut |event| sink.push(&event));
            if begun.elapsed() >= SLICE {
                break;
            }
        }
        self.spent += begun.elapsed();
        if self.left.is_empty() {
            self.next = Instant::now() + BETWEEN.max(self.spent * REST);
        }
    }
}
