//! The parts of one process that have their own series.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use crate::snapshot::{Calls, Copies, Errors, Kernel, Process};

use super::{
    bounds::{DURATION_BOUNDS, SIZE_BOUNDS},
    other::{sum_calls, sum_copies, sum_errors},
};

/// Series of one function's durations.
const CALLS: usize = DURATION_BOUNDS.len() + 3;
/// Series of one direction of copies: two counters and two histograms.
const COPIES: usize = 2 + SIZE_BOUNDS.len() + 3 + DURATION_BOUNDS.len() + 3;
/// Functions with durations, per process: those that do the program's GPU work, and all others. Programs call many of
/// the others at startup, which would leave none for later ones.
const MAX_WORKING: usize = 16;
pub const MAX_FUNCTIONS: usize = 6;
/// Names in "other" that are remembered, per kind and process: some programs create new kernels endlessly.
const MAX_OTHER: usize = 4096;
/// Directions of copies, synchronous and asynchronous ones separately, per process.
const MAX_COPIES: usize = 12;
/// Errors by function and code, per process.
const MAX_ERRORS: usize = 32;
/// Leak suspects per process.
const MAX_SUSPECTS: usize = 5;

/// The parts of a process that have series.
#[derive(Default)]
pub struct Own {
    /// The number of their series.
    pub used: usize,
    kernels: Chosen<Arc<str>>,
    other_launches: u64,
    copies: Chosen<(&'static str, bool)>,
    errors: Chosen<(Arc<str>, Arc<str>)>,
    working: Chosen<Arc<str>>,
    calls: Chosen<Arc<str>>,
}

/// The keys that have series, and those that are permanently in "other".
struct Chosen<K> {
    own: HashSet<K>,
    other: HashSet<K>,
}

impl<K> Default for Chosen<K> {
    fn default() -> Self {
        Self { own: HashSet::new(), other: HashSet::new() }
    }
}

impl<K: Eq + Hash> Chosen<K> {
    fn knows(&self, key: &K) -> bool {
        self.own.contains(key) || self.other.contains(key)
    }
}

/// The series still available.
pub struct Room {
    pub left: usize,
    /// Used since.
    pub used: usize,
    /// Series that were summed as "other" instead.
    pub summed: u64,
}

impl Room {
    /// Splits `items` into those with their own series and the rest.
    fn part<T, K: Eq + Hash>(
        &mut self,
        items: Vec<T>,
        key: impl Fn(&T) -> K,
        chosen: &mut Chosen<K>,
        most: usize,
        series: usize,
    ) -> (Vec<T>, Vec<T>) {
        let (mine, rest): (Vec<T>, Vec<T>) = items.into_iter().partition(|item| {
            let key = key(item);
            if chosen.knows(&key) {
                return chosen.own.contains(&key);
            }
            let fits = chosen.own.len() < most && series <= self.left;
            if fits {
                chosen.own.insert(key);
                self.left -= series;
                self.used += series;
            } else if chosen.other.len() < MAX_OTHER {
                chosen.other.insert(key);
            }
            fits
        });
        self.summed += (rest.len() * series) as u64;
        (mine, rest)
    }
}

impl Own {
    /// A process with this many series, and none for its parts yet.
    pub fn new(used: usize) -> Self {
        Self { used, ..Self::default() }
    }

    /// Returns the process with the parts that have series; the rest is in its "other" rows.
    pub fn select(&mut self, process: &Process, top_kernels: usize, room: &mut Room) -> Process {
        let mut shown = Process { suspects: Vec::new(), ..process.clone() };
        // A label that is added later would be another series.
        let resolved = process.suspects.iter().filter(|suspect| !suspect.resolving);
        shown.suspects = resolved.take(MAX_SUSPECTS).cloned().collect();

        shown.errors.sort_by_key(|errors| std::cmp::Reverse(errors.count));
        let key = |errors: &Errors| (errors.function.clone(), errors.code.clone());
        let (mine, rest) = room.part(shown.errors, key, &mut self.errors, MAX_ERRORS, 1);
        shown.errors = mine;
        shown.errors.extend(sum_errors(&rest));

        let key = |copies: &Copies| (copies.direction, copies.asynchronous);
        let (mine, rest) = room.part(shown.copies, key, &mut self.copies, MAX_COPIES, COPIES);
        shown.copies = mine;
        shown.copies.extend(sum_copies(&rest));

        shown.kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.launches));
        let key = |kernel: &Kernel| kernel.name.clone();
        let (mine, rest) = room.part(shown.kernels, key, &mut self.kernels, top_kernels, 1);
        shown.kernels = mine;
        let launches = rest.iter().map(|kernel| kernel.launches).sum::<u64>().saturating_add(process.other_launches);
        self.other_launches = self.other_launches.max(launches);
        shown.other_launches = self.other_launches;

        shown.calls.sort_by_key(|calls| std::cmp::Reverse(calls.ns));
        let key = |calls: &Calls| calls.function.clone();
        // A function keeps its series, even if the program starts calling it directly later.
        let is_working = |calls: &mut Calls| calls.working && !self.calls.knows(&calls.function);
        let working = shown.calls.extract_if(.., is_working).collect();
        let (mut mine, mut rest) = room.part(working, key, &mut self.working, MAX_WORKING, CALLS);
        let (others, more) = room.part(shown.calls, key, &mut self.calls, MAX_FUNCTIONS, CALLS);
        mine.extend(others);
        rest.extend(more);
        shown.calls = mine;
        shown.calls.extend(sum_calls(&rest));
        shown
    }
}
