//! The last numbers of processes that have ended. They are kept for some minutes: several scrapers, each with its own
//! interval, are to see the same.

use std::{collections::VecDeque, time::Duration};

use crate::snapshot::Process;

/// The most processes that are kept; beyond them, the oldest go.
pub const MOST_ENDED: usize = 1024;

/// Few scrape less often.
const LONGEST_INTERVAL_NS: u64 = 60_000_000_000;

/// Ended processes, the oldest first.
pub struct Ended {
    keep_ns: u64,
    kept: VecDeque<(u64, Process)>,
}

impl Ended {
    /// Each is kept for so long.
    pub fn new(keep: Duration) -> Self {
        Self { keep_ns: u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX), kept: VecDeque::new() }
    }

    /// Keeps the ended ones of `processes`, as they are at the time `now`. They hold no memory any more.
    pub fn keep(&mut self, processes: &[Process], now: u64) {
        for process in processes.iter().filter(|process| process.ended) {
            if !self.kept.iter().any(|(_, known)| known.id == process.id) {
                self.kept.push_back((now, Process { suspects: Vec::new(), ..process.clone() }));
            }
        }
    }

    /// Takes out those whose time is over, and the oldest beyond the most.
    pub fn release(&mut self, now: u64) -> Vec<Process> {
        let over = self.kept.iter().take_while(|(since, _)| now.saturating_sub(*since) >= self.keep_ns).count();
        let many = self.kept.len().saturating_sub(MOST_ENDED);
        self.kept.drain(..over.max(many)).map(|(_, process)| process).collect()
    }

    /// Takes out the oldest, if every scraper has had time to see it.
    pub fn release_seen(&mut self, now: u64) -> Option<Process> {
        let seen = self.kept.front().is_some_and(|(since, _)| now.saturating_sub(*since) >= LONGEST_INTERVAL_NS);
        if seen { self.kept.pop_front().map(|(_, process)| process) } else { None }
    }

    /// Takes out the oldest that `wanted` likes.
    pub fn release_oldest(&mut self, wanted: impl Fn(&Process) -> bool) -> Option<Process> {
        let place = self.kept.iter().position(|(_, process)| wanted(process))?;
        self.kept.remove(place).map(|(_, process)| process)
    }

    /// All that are kept, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Process> {
        self.kept.iter().rev().map(|(_, process)| process)
    }
}
