//! Gaps: the time between mapping a library and watching it. Calls in a gap cannot be counted; the gap can be measured.

use std::collections::HashMap;

/// The most processes whose gap is remembered by pid.
const MOST: usize = 4096;

/// All gaps so far.
#[derive(Debug, Default)]
pub struct Late {
    /// Processes that mapped a library before it was watched.
    pub processes: u64,
    /// The sum of the gaps in nanoseconds, the longest of each process.
    pub ns: u64,
    /// Processes that ended before their library was watched.
    pub missed: u64,
    by_pid: HashMap<u32, Gap>,
    ended: Vec<Ended>,
}

/// A process that had ended when its library was found: whether any of its calls was seen is known after all records up to
/// then have been read.
#[derive(Clone, Copy, Debug)]
struct Ended {
    pid: u32,
    mapped: u64,
    watched: u64,
    /// Records have been read since.
    read: bool,
}

/// The gap of one process: when it mapped the library, and how long the gap was.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u64,
    ns: u64,
}

impl Late {
    /// Adds the gap of a process that mapped a library at `mapped`, which has been watched since `watched`.
    pub fn add(&mut self, pid: u32, mapped: u64, watched: u64) {
        if mapped == 0 || mapped >= watched {
            return;
        }
        let ns = watched - mapped;
        // Those that never call CUDA are not forgotten when they end: the oldest make room.
        if self.by_pid.len() >= MOST
            && !self.by_pid.contains_key(&pid)
            && let Some(oldest) = self.by_pid.iter().min_by_key(|(_, gap)| gap.from).map(|(pid, _)| *pid)
        {
            self.by_pid.remove(&oldest);
        }
        match self.by_pid.get_mut(&pid) {
            // Another library of the same process.
            Some(gap) => {
                self.ns += ns.saturating_sub(gap.ns);
                gap.ns = gap.ns.max(ns);
            }
            None => {
                self.processes += 1;
                self.ns += ns;
                self.by_pid.insert(pid, Gap { from: mapped, ns });
            }
        }
    }

    /// Adds a process that mapped a library at `mapped` and has ended. The library has been watched since `watched`.
    pub fn add_ended(&mut self, pid: u32, mapped: u64, watched: u64) {
        if mapped == 0 || mapped > watched || self.ended.iter().any(|ended| ended.pid == pid) {
            return;
        }
        if self.ended.len() >= MOST {
            self.missed += 1;
            return;
        }
        self.ended.push(Ended { pid, mapped, watched, read: false });
    }

    /// Counts processes that had ended, after all records have been read. `was_seen` says whether a process made a call that
    /// was seen. Returns `true` if one was missed.
    pub fn settle(&mut self, was_seen: impl Fn(u32) -> bool) -> bool {
        let before = self.missed;
        for ended in std::mem::take(&mut self.ended) {
            let Ended { pid, mapped, watched, read } = ended;
            if was_seen(pid) {
                self.add(pid, mapped, watched);
            } else if read {
                self.missed += 1;
            } else {
                self.ended.push(Ended { read: true, ..ended });
            }
        }
        self.missed > before
    }

    /// Returns how long a process first seen at `seen` was not watched.
    pub fn of(&self, pid: u32, seen: u64) -> Option<u64> {
        self.by_pid.get(&pid).filter(|gap| gap.from <= seen).map(|gap| gap.ns)
    }

    /// Removes a process that has ended; its pid may be reused.
    pub fn forget(&mut self, pid: u32) {
        self.by_pid.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a process counts once, with its longest gap, and that one that mapped it after watching began does not count.
    #[test]
    fn a_process_counts_once_with_its_longest_gap() {
        let mut late = Late::default();
        late.add(7, 100, 130);
        late.add(7, 110, 150);
        late.add(8, 200, 150);
        late.add(9, 0, 150);
        assert_eq!((late.processes, late.ns), (1, 40));
        assert_eq!((late.of(7, 160), late.of(8, 210), late.of(7, 50)), (Some(40), None, None));
        late.forget(7);
        assert_eq!(late.of(7, 160), None);
    }

    /// Check that the gaps of processes that are never forgotten are bounded, and that the latest are kept.
    #[test]
    fn the_oldest_gaps_make_room() {
        let mut late = Late::default();
        let count = MOST as u32 + 10;
        for pid in 1..=count {
            late.add(pid, pid.into(), u64::from(pid) + 5);
        }
        assert_eq!((late.by_pid.len(), late.processes), (MOST, count.into()));
        assert_eq!([10, 11, count].map(|pid| late.of(pid, u64::MAX)), [None, Some(5), Some(5)]);
    }

    /// Check that a process that ended before its libraries were watched is missed once, after the records of its last moments
    /// were read, and that one whose calls were seen is late instead.
    #[test]
    fn ended_processes_are_missed_unless_they_were_seen() {
        let mut late = Late::default();
        late.add_ended(7, 100, 130);
        late.add_ended(7, 110, 150);
        late.add_ended(8, 100, 130);
        late.add_ended(9, 200, 150);
        assert!(!late.settle(|_| false), "records of its last calls may follow");
        assert!(late.settle(|pid| pid == 8));
        assert_eq!((late.missed, late.processes, late.ns), (1, 1, 30));
        assert!(!late.settle(|_| false));
        assert_eq!((late.of(8, 140), late.of(7, 140)), (Some(30), None));
    }
}
