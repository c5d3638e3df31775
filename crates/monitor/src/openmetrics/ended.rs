//! The last values of ended processes. They are kept for some minutes, so that several scrapers with different
//! intervals see the same values.

use std::{collections::VecDeque, time::Duration};

use crate::snapshot::{Process, nanoseconds};

/// The maximum number of processes kept; beyond it, the oldest are removed.
pub const MAX_ENDED: usize = 1024;

/// The longest usual scrape interval.
const MAX_INTERVAL_NS: u64 = 60_000_000_000;

/// Ended processes, the oldest first.
pub struct Ended {
    keep_ns: u64,
    kept: VecDeque<(u64, Process)>,
}

impl Ended {
    /// Keeps each process for `keep`.
    pub fn new(keep: Duration) -> Self {
        Self { keep_ns: nanoseconds(keep), kept: VecDeque::new() }
    }

    /// Keeps the ended ones among `processes`, as they are at time `now`. They no longer hold memory.
    pub fn keep(&mut self, processes: &[Process], now: u64) {
        for process in processes.iter().filter(|process| process.ended) {
            if !self.kept.iter().any(|(_, known)| known.id == process.id) {
                self.kept.push_back((now, Process { suspects: Vec::new(), ..process.clone() }));
            }
        }
    }

    /// Removes the expired ones, and the oldest beyond the maximum.
    pub fn release(&mut self, now: u64) -> Vec<Process> {
        let over = self.kept.iter().take_while(|(since, _)| now.saturating_sub(*since) >= self.keep_ns).count();
        let many = self.kept.len().saturating_sub(MAX_ENDED);
        self.kept.drain(..over.max(many)).map(|(_, process)| process).collect()
    }

    /// Removes the oldest, if every scraper has had time to see it.
    pub fn release_seen(&mut self, now: u64) -> Option<Process> {
        let seen = self.kept.front().is_some_and(|(since, _)| now.saturating_sub(*since) >= MAX_INTERVAL_NS);
        if seen { self.kept.pop_front().map(|(_, process)| process) } else { None }
    }

    /// Removes the oldest that satisfies `predicate`.
    pub fn release_oldest(&mut self, predicate: impl Fn(&Process) -> bool) -> Option<Process> {
        let place = self.kept.iter().position(|(_, process)| predicate(process))?;
        self.kept.remove(place).map(|(_, process)| process)
    }

    /// Returns all kept processes, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Process> {
        self.kept.iter().rev().map(|(_, process)| process)
    }
}
