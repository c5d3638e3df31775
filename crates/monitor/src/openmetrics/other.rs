//! Sums of everything without its own series.

use crate::snapshot::{Calls, Copies, Errors, Memory, Process};

/// The label for everything without its own series.
pub const OTHER: &str = "other";

/// Adds the counts of `from` to `into`, without kernels, functions and errors by name.
pub fn absorb(into: &mut Process, from: &Process) {
    for memory in &from.memory {
        add_memory(&mut into.memory, memory);
    }
    let launches: u64 = from.kernels.iter().map(|kernel| kernel.launches).sum();
    add(&mut into.other_launches, launches + from.other_launches + from.unnamed_launches);
    add(&mut into.graph_launches, from.graph_launches);
    into.sets.add(from.sets);
    into.copies.extend(from.copies.iter().cloned());
    into.copies = sum_copies(&into.copies).into_iter().collect();
    into.errors.extend(from.errors.iter().cloned());
    into.errors = sum_errors(&into.errors).into_iter().collect();
    into.calls.extend(from.calls.iter().cloned());
    into.calls = sum_calls(&into.calls).into_iter().collect();
}

fn add_memory(all: &mut Vec<Memory>, more: &Memory) {
    match all.iter_mut().find(|memory| memory.space == more.space) {
        None => all.push(*more),
        Some(memory) => {
            add(&mut memory.live, more.live);
            add(&mut memory.live_bytes, more.live_bytes);
            memory.peak_bytes = memory.peak_bytes.max(more.peak_bytes);
            add(&mut memory.allocations, more.allocations);
            add(&mut memory.allocated_bytes, more.allocated_bytes);
            add(&mut memory.frees, more.frees);
            add(&mut memory.failed, more.failed);
            add(&mut memory.failed_frees, more.failed_frees);
            add(&mut memory.unknown_frees, more.unknown_frees);
            add(&mut memory.missed_frees, more.missed_frees);
            add(&mut memory.released, more.released);
            add(&mut memory.untracked, more.untracked);
        }
    }
}

/// Sums all errors.
pub fn sum_errors(all: &[Errors]) -> Option<Errors> {
    let count = all.iter().map(|errors| errors.count).sum();
    (!all.is_empty()).then(|| Errors { function: OTHER.into(), code: OTHER.into(), count })
}

/// Sums all directions. The time of copies that return early is not the copy's, so they are not timed here either.
pub fn sum_copies(all: &[Copies]) -> Option<Copies> {
    let mut sum = Copies { direction: OTHER, asynchronous: true, ..Copies::default() };
    for copies in all {
        sum.moved.add(copies.moved);
        add_counts(&mut sum.sizes, &copies.sizes);
    }
    (!all.is_empty()).then_some(sum)
}

/// Sums all functions.
pub fn sum_calls(all: &[Calls]) -> Option<Calls> {
    let mut sum = Calls { function: OTHER.into(), ..Calls::default() };
    for calls in all {
        add(&mut sum.count, calls.count);
        add(&mut sum.ns, calls.ns);
        add_counts(&mut sum.durations, &calls.durations);
    }
    (!all.is_empty()).then_some(sum)
}

/// Adds counts by bound; the bounds of both lists are ascending.
fn add_counts(into: &mut Vec<(u64, u64)>, more: &[(u64, u64)]) {
    for &(bound, count) in more {
        match into.binary_search_by_key(&bound, |&(known, _)| known) {
            Ok(place) => add(&mut into[place].1, count),
            Err(place) => into.insert(place, (bound, count)),
        }
    }
}

/// Sizes come from untrusted programs and can have any value.
fn add(into: &mut u64, more: u64) {
    *into = into.saturating_add(more);
}
