//! Decides which processes, kernels, functions and errors get their own time series, so that their number stays
//! bounded.
//!
//! To Prometheus a counter that decreases looks like a restart, and its rates become wrong. So "other" must only grow,
//! and the choice is final: the first to arrive, and of those that arrive together the largest, get a series and keep
//! it until their process ends. Everything else is added to "other" and stays there. The counts of processes without
//! their own series stay in "other" after they have ended. Ended processes keep their series for some minutes, a
//! quarter of all if they are new, half if they had them before, and are evicted when a living process needs room.
//!
//! ```text
//!   max-series   0 ────────────────────────────── 3/4 ──────────── 1
//!                  kernels, copies, errors, calls  │ only the core
//!                  and the rest                    │ series of a process
//! ```

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use crate::snapshot::{Process, Space};

use super::{
    ended::Ended,
    other::{OTHER, absorb},
    own::{Own, Room},
};

/// Core series of a process: memory in three spaces, launches, memsets, time.
const CORE: usize = 34;

/// Limits on the number of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all processes together.
    pub max_series: usize,
    /// Kernels per process.
    pub top_kernels: usize,
    /// How long the last values of an ended process are reported.
    pub keep_ended: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_series: 20_000, top_kernels: 30, keep_ended: Duration::from_secs(300) }
    }
}

/// Remembers what has series.
pub struct Selection {
    limits: Limits,
    used: usize,
    with_series: HashMap<u32, Own>,
    /// Living processes without their own series, as last seen.
    without: HashMap<u32, Process>,
    /// The sum of ended processes without series.
    retired: Process,
    retired_processes: u64,
    ended: Ended,
}

/// The selection to report.
pub struct Selected {
    /// Processes with their selected parts. Everything without its own series is in their "other" rows and in the last
    /// process, whose `id` and `pid` are 0.
    pub processes: Vec<Process>,
    /// How many more series there would be.
    pub summed: u64,
}

impl Selection {
    /// Creates a selection without series.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            used: 0,
            with_series: HashMap::new(),
            without: HashMap::new(),
            retired: Process { comm: OTHER.to_owned(), ..Process::default() },
            retired_processes: 0,
            ended: Ended::new(limits.keep_ended),
        }
    }

    /// Keeps the last values of processes that have ended by `now`.
    pub fn keep_ended(&mut self, processes: &[Process], now: u64) {
        self.ended.keep(processes, now);
        for process in self.ended.release(now) {
            self.drop_ended(&process);
        }
    }

    /// Drops an ended process whose last values are no longer reported. If it had series, "other" would count their
    /// contents again, so what it did since the last scrape is omitted; if it had none, everything goes to "other".
    fn drop_ended(&mut self, process: &Process) {
        if self.with_series.contains_key(&process.id) || self.without.contains_key(&process.id) {
            self.forget(process.id);
        } else {
            self.absorb_ended(process);
        }
    }

    /// Selects from the processes of a snapshot pids at `now`, and from those that ended before.
    pub fn select(&mut self, processes: &[Process], now: u64) -> Selected {
        self.keep_ended(processes, now);
        let living = || processes.iter().filter(|process| !process.ended);
        // A reused pid must not be reported twice; the newest process wins.
        let mut pids: HashSet<u32> = living().map(|process| process.pid).collect();
        let newest = self.ended.newest_first().filter(|process| pids.insert(process.pid));
        let newest: HashSet<u32> = newest.map(|process| process.id).collect();
        while let Some(process) = self.ended.release_oldest(|process| !newest.contains(&process.id)) {
            self.drop_ended(&process);
        }
        self.make_room(living());
        while self.series_of_ended() >= self.limits.max_series / 4
            && let Some(process) = self.ended.release_seen(now)
        {
            self.drop_ended(&process);
        }
        let ended: Vec<Process> = self.ended.newest_first().cloned().collect();
        self.forget_all_but(&living().chain(&ended).map(|process| process.id).collect());
        let mut selected = Selected { processes: Vec::with_capacity(processes.len() + 1), summed: 0 };
        for process in living() {
            self.select_one(process, self.limits.max_series, &mut selected);
        }
        let quarter = self.limits.max_series / 4;
        let mut of_ended = self.series_of_ended();
        for process in &ended {
            let before = self.used;
            // A process that lived between two scrapes gets a series only if all scrapers will see it.
            self.select_one(process, if of_ended < quarter { self.limits.max_series } else { 0 }, &mut selected);
            of_ended += self.used - before;
        }
        let mut other = self.retired.clone();
        for process in self.without.values() {
            absorb(&mut other, process);
        }
        let others = self.retired_processes + self.without.len() as u64;
        if others > 0 {
            selected.summed += others;
            selected.processes.push(other);
        }
        selected
    }

    /// Evicts ended processes to make room for living ones without series, and limits them to half of all series.
    fn make_room<'a>(&mut self, living: impl Iterator<Item = &'a Process>) {
        let new = living.filter(|p| !self.with_series.contains_key(&p.id) && !self.without.contains_key(&p.id)).count();
        loop {
            let half = self.limits.max_series / 2;
            let enough = self.used + new * CORE <= self.limits.max_series && self.series_of_ended() <= half;
            if enough {
                return;
            }
            let with_series = &self.with_series;
            let oldest = self.ended.release_oldest(|process| with_series.contains_key(&process.id));
            let Some(oldest) = oldest else { return };
            self.drop_ended(&oldest);
        }
    }

    fn series_of_ended(&self) -> usize {
        let own = self.ended.newest_first().filter_map(|process| self.with_series.get(&process.id));
        own.map(|own| own.used).sum()
    }

    fn forget_all_but(&mut self, known: &HashSet<u32>) {
        let retired: Vec<u32> =
            self.with_series.keys().chain(self.without.keys()).copied().filter(|id| !known.contains(id)).collect();
        for id in retired {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u32) {
        if let Some(own) = self.with_series.remove(&id) {
            self.used -= own.used;
        }
        if let Some(process) = self.without.remove(&id) {
            self.absorb_ended(&process);
        }
    }

    /// Adds the counts of an ended process to the sum of ended ones. It no longer holds memory.
    fn absorb_ended(&mut self, process: &Process) {
        let mut last = Process::default();
        absorb(&mut last, process);
        for memory in &mut last.memory {
            (memory.live, memory.live_bytes, memory.peak_bytes) = (0, 0, 0);
        }
        absorb(&mut self.retired, &last);
        self.retired_processes += 1;
    }

    /// Selects one process. A new process gets series if fewer than `most` are in use.
    fn select_one(&mut self, process: &Process, most: usize, selected: &mut Selected) {
        if !self.with_series.contains_key(&process.id) {
            if self.without.contains_key(&process.id) || self.used + CORE > most {
                let mut sums = Process::default();
                absorb(&mut sums, process);
                self.without.insert(process.id, sums);
                return;
            }
            self.used += CORE;
            self.with_series.insert(process.id, Own::new(CORE));
        }
        let Some(own) = self.with_series.get_mut(&process.id) else { return };
        let before = own.used;
        let mut room = Room { left: (self.limits.max_series / 4 * 3).saturating_sub(self.used), used: 0, summed: 0 };
        let shown = own.select(process, self.limits.top_kernels, &mut room);
        own.used = before + room.used;
        self.used += room.used;
        selected.summed += room.summed;
        selected.processes.push(shown);
    }
}

/// The spaces for which memory is reported, so that a counter exists before it first increases.
pub const SPACES: [Space; 3] = [Space::Device, Space::Managed, Space::Host];

#[cfg(test)]
mod tests {
    use super::{
        super::{ended::MAX_ENDED, own::MAX_FUNCTIONS},
        *,
    };
    use crate::snapshot::{Calls, Kernel};

    fn process(id: u32, kernels: &[(&str, u64)]) -> Process {
        let kernel = |&(name, launches): &(&str, u64)| Kernel { name: name.into(), launches, ..Kernel::default() };
        Process { id, pid: id, kernels: kernels.iter().map(kernel).collect(), ..Process::default() }
    }

    fn launches(process: &Process) -> u64 {
        process.kernels.iter().map(|kernel| kernel.launches).sum::<u64>() + process.other_launches
    }

    /// Check that "other" does not decrease when a kernel overtakes others: a series is kept once assigned.
    #[test]
    fn other_only_grows() {
        let mut selection = Selection::new(Limits { max_series: 1000, top_kernels: 2, ..Limits::default() });
        let mut other = 0;
        for round in 1..50_u64 {
            let selected = selection
                .select(&[process(1, &[("a", 100 * round), ("b", 50 * round), ("c", round * round * round)])], 0);
            let shown = &selected.processes[0];
            assert_eq!(shown.kernels.iter().map(|kernel| &*kernel.name).collect::<HashSet<_>>(), ["a", "b"].into());
            assert!(shown.other_launches > other);
            assert_eq!(launches(shown), 150 * round + round * round * round);
            assert_eq!(selected.summed, 1);
            other = shown.other_launches;
        }
    }

    /// Check that the number of series is bounded, that no count is lost, and that room is reused.
    #[test]
    fn series_are_bounded() {
        let mut selection = Selection::new(Limits { max_series: 200, ..Limits::default() });
        let names: Vec<String> = (0..100).map(|name| format!("k{name}")).collect();
        let kernels: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 7)).collect();
        let many: Vec<Process> = (1..=50).map(|id| process(id, &kernels)).collect();
        let selected = selection.select(&many, 0);
        assert_eq!(selected.processes.iter().map(launches).sum::<u64>(), 50 * 700);
        let series: usize = selected.processes.iter().map(|process| CORE + process.kernels.len()).sum();
        assert!(series <= 200 + CORE, "{series}");
        assert!(selection.used <= 200);
        assert!(selected.summed > 0);

        // All end unnoticed. What was in "other" stays there; what had a series disappears with it.
        let selected = selection.select(&[process(99, &[("k", 1)])], 0);
        assert_eq!(selected.processes.len(), 2);
        assert_eq!(selection.used, CORE + 1);
        let again = selection.select(&[process(99, &[("k", 1)])], 0);
        assert_eq!(launches(&again.processes[1]), launches(&selected.processes[1]));
    }

    /// Check that functions called at startup leave room for the working ones, and that "other" is permanent.
    #[test]
    fn startup_functions_leave_room() {
        let call = |function: &str, working, count| Calls {
            function: function.into(),
            count,
            ns: count,
            durations: vec![(u64::MAX, count)],
            working,
        };
        let mut start: Vec<Calls> = (0..50).map(|n| call(&format!("cuStart{n}"), false, 100)).collect();
        let mut selection = Selection::new(Limits::default());
        let with = |calls: &[Calls]| [Process { id: 1, pid: 1, calls: calls.to_vec(), ..Process::default() }];
        let shown = |selected: Selected| -> Vec<(String, u64)> {
            let calls = selected.processes.into_iter().flat_map(|process| process.calls);
            calls.map(|calls| (calls.function.to_string(), calls.count)).collect()
        };
        let first = shown(selection.select(&with(&start), 0));
        assert_eq!(first.len(), MAX_FUNCTIONS + 1);
        assert_eq!(first.last(), Some(&(OTHER.to_owned(), 4400)));
        start.push(call("cudaLaunchKernel", true, 1));
        // A function in "other" turns out to be called directly.
        start[49].working = true;
        let second = shown(selection.select(&with(&start), 0));
        assert!(second.contains(&("cudaLaunchKernel".to_owned(), 1)), "{second:?}");
        assert_eq!(second.last(), first.last());
    }

    /// Check that an ended process is reported until it expires, even if its last snapshot went elsewhere, and never
    /// merged with a later process of the same pid.
    #[test]
    fn ended_processes_are_reported_until_they_expire() {
        let minutes = |minutes: u64| minutes * 60_000_000_000;
        let mut selection = Selection::new(Limits { keep_ended: Duration::from_secs(300), ..Limits::default() });
        let last = Process { ended: true, ..process(1, &[("k", 5)]) };
        let ids = |selected: Selected| selected.processes.iter().map(|p| (p.id, launches(p))).collect::<Vec<_>>();
        selection.keep_ended(std::slice::from_ref(&last), minutes(1));
        for minute in [1, 2, 5] {
            assert_eq!(ids(selection.select(&[process(2, &[])], minutes(minute))), [(2, 0), (1, 5)]);
        }
        assert_eq!(ids(selection.select(&[process(2, &[])], minutes(6))), [(2, 0)]);
        // The pid now belongs to a process with its own series: unreported counts of the old process are in "other".
        selection.keep_ended(&[Process { id: 3, pid: 2, ..last.clone() }], minutes(7));
        assert_eq!(ids(selection.select(&[process(2, &[])], minutes(7))), [(2, 0), (0, 5)]);
    }

    /// Check that a reused pid does not make "other" count again what had its own series.
    #[test]
    fn a_reused_pid_is_not_counted_twice() {
        let mut selection = Selection::new(Limits::default());
        selection.select(&[process(1, &[("k", 1_000_000)])], 0);
        let ended = Process { ended: true, ..process(1, &[("k", 1_000_001)]) };
        let successor = Process { id: 2, ..process(1, &[("k", 3)]) };
        let selected = selection.select(&[ended, successor], 0);
        assert_eq!(selected.processes.iter().map(launches).collect::<Vec<_>>(), [3]);
    }

    /// Check that ten thousand short processes within minutes stay bounded, are all counted, and leave room for living
    /// ones.
    #[test]
    fn many_short_processes_are_bounded() {
        let mut selection = Selection::new(Limits::default());
        for id in 1..=10_000 {
            selection.keep_ended(&[Process { ended: true, ..process(id, &[("k", 3)]) }], 0);
        }
        for _ in 0..3 {
            let selected = selection.select(&[], 0);
            assert!(selected.processes.len() <= MAX_ENDED + 1);
            assert_eq!(selected.processes.iter().map(launches).sum::<u64>(), 30_000);
        }
        assert!(selection.used <= 20_000 / 4 * 3);
        let living: Vec<Process> = (20_001..20_401).map(|id| process(id, &[("k", 1)])).collect();
        let selected = selection.select(&living, 0);
        assert_eq!(
            selected.processes.iter().filter(|process| process.id > 20_000).count(),
            400,
            "each has its own series"
        );
    }
}
