//! Summarises the calls of a process: latencies, copies, memsets, launches without a kernel, errors.

use std::collections::BTreeMap;

use bpf::calls::{ErrorSum, Sum};
use cuda::calls::{Direction, Role, Way};
use model::histogram;

use super::state::{Function, State};
use crate::snapshot::{Calls, Copies, Errors, Moved, Process};

/// Adds the call sums of one process to its part of the snapshot.
pub fn add(process: &mut Process, sums: &[&Sum], state: &State) {
    let mut calls = BTreeMap::<&str, (Calls, Vec<u64>)>::new();
    let mut copies = BTreeMap::<(Direction, bool), (Moved, Vec<u64>, Vec<u64>)>::new();
    for sum in sums {
        let Some(function) = state.functions.get(&sum.function) else { continue };
        if function.shown {
            let (all, buckets) = calls.entry(&function.name).or_default();
            all.function = function.name.clone();
            all.count += sum.count;
            all.ns += sum.ns;
            all.working |= !sum.nested && submits_or_waits(function);
            merge(buckets, &sum.buckets);
        }
        // A failed call did nothing, and a nested call of the same kind is already counted by the outer one.
        if sum.nested || sum.failed {
            continue;
        }
        let moved = Moved { count: sum.count, bytes: sum.bytes, ns: sum.ns };
        match function.known.map(|known| known.role) {
            Some(Role::Copy) => {
                let key = (direction(function, sum.class), function.name.contains("Async"));
                let (all, sizes, durations) = copies.entry(key).or_default();
                all.add(moved);
                merge(sizes, &sum.sizes);
                merge(durations, &sum.buckets);
            }
            Some(Role::Set) => process.sets.add(moved),
            Some(Role::GraphLaunch) => process.graph_launches += sum.count,
            Some(Role::Launch) if function.known.is_some_and(|known| known.launches().is_none()) => {
                process.other_launches += sum.count;
            }
            _ => {}
        }
    }
    process.calls =
        calls.into_values().map(|(calls, buckets)| Calls { durations: durations(&buckets), ..calls }).collect();
    process.copies = copies
        .into_iter()
        .map(|((direction, asynchronous), (moved, size_counts, buckets))| Copies {
            direction: name(direction),
            asynchronous,
            moved,
            sizes: sizes(&size_counts),
            durations: if asynchronous { Vec::new() } else { durations(&buckets) },
        })
        .collect();
}

/// Adds failed calls to the snapshot.
pub fn add_errors(process: &mut Process, sums: &[&ErrorSum], state: &State) {
    // If a call failed because a nested call failed, only the outer one is counted.
    for sum in sums.iter().filter(|sum| !sum.enclosed) {
        let Some(function) = state.functions.get(&sum.function) else { continue };
        let code = cuda::results::result(&function.name, sum.code).unwrap_or_else(|| sum.code.to_string().into());
        process.errors.push(Errors { function: function.name.clone(), code: (*code).into(), count: sum.count });
    }
    process.errors.sort_by(|a, b| (&a.function, &a.code).cmp(&(&b.function, &b.code)));
}

/// Whether the function submits GPU work, allocates or frees memory, or waits.
fn submits_or_waits(function: &Function) -> bool {
    use Role::{Alloc, Copy, Free, GraphLaunch, HostFunction, Launch, Set, Synchronize};
    function.known.is_some_and(|known| {
        matches!(known.role, Alloc | Free | Copy | Set | Launch | GraphLaunch | HostFunction | Synchronize)
    })
}

fn direction(function: &Function, class: u32) -> Direction {
    match function.known.and_then(|known| known.sums()).and_then(|sums| sums.direction) {
        Some(Way::Fixed(direction)) => Some(direction),
        Some(Way::Word(_)) => Direction::from_kind(class.into()),
        None => None,
    }
    .unwrap_or(Direction::Default)
}

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::HtoH => "HtoH",
        Direction::HtoD => "HtoD",
        Direction::DtoH => "DtoH",
        Direction::DtoD => "DtoD",
        Direction::Default => "Default",
        Direction::Peer => "PtoP",
    }
}

fn merge(sums: &mut Vec<u64>, counts: &[u64]) {
    sums.resize(sums.len().max(counts.len()), 0);
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count;
    }
}

/// Returns the non-empty buckets, each with the longest duration in it.
fn durations(buckets: &[u64]) -> Vec<(u64, u64)> {
    bounded(buckets, |index| histogram::lower_bound(index + 1) - 1)
}

/// Returns the non-empty size buckets: bucket 1 holds single bytes, bucket 2 two and three bytes, and so on.
fn sizes(buckets: &[u64]) -> Vec<(u64, u64)> {
    bounded(buckets, |index| (1 << index) - 1)
}

fn bounded(buckets: &[u64], largest: impl Fn(usize) -> u64) -> Vec<(u64, u64)> {
    let last = buckets.len().saturating_sub(1);
    let bound = |index| if index == last { u64::MAX } else { largest(index) };
    let counted = buckets.iter().enumerate().filter(|(index, count)| **count > 0 || *index == last);
    counted.map(|(index, count)| (bound(index), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that buckets are reported by their largest member, and that the last one has no bound.
    #[test]
    fn buckets_are_reported_by_their_largest_member() {
        assert_eq!(sizes(&[1, 0, 2, 0]), [(0, 1), (3, 2), (u64::MAX, 0)]);
        let mut buckets = vec![0; histogram::BUCKETS];
        buckets[histogram::bucket(1000)] = 5;
        let reported = durations(&buckets);
        assert_eq!(reported.len(), 2);
        assert!(reported[0].0 >= 1000 && reported[0].0 < 1200, "{reported:?}");
        assert_eq!(reported[1], (u64::MAX, 0));
    }
}
