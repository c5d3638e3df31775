//! Measures the library's own cost.
//!
//! Callbacks are timed by sampling: on average one in [`SAMPLING`], chosen at random for each thread. A sample stands for [`SAMPLING`] callbacks. The clock is CLOCK_MONOTONIC,
//! which needs no system call.
//!
//! A measurement of more than 200 µs was interrupted and does not count.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::random::Countdown;
use crate::totals::add;
use crate::{sampling, sys};

/// The mean number of callbacks that one sample stands for.
const SAMPLING: u32 = 32;

/// A callback that took longer was interrupted: its time is that of other threads.
const LONGEST: u64 = 200_000;

static CALLBACKS: AtomicU64 = AtomicU64::new(0);
/// The number of callbacks that were timed.
static TIMED_CALLBACKS: AtomicU64 = AtomicU64::new(0);
static STACKS: AtomicU64 = AtomicU64::new(0);
/// The number of stacks that were timed.
static TIMED_STACKS: AtomicU64 = AtomicU64::new(0);
/// Time of reading records on threads other than the sender.
static READING: AtomicU64 = AtomicU64::new(0);
/// CPU time of the process when the session began.
static BEFORE: AtomicU64 = AtomicU64::new(0);
/// The time between two readings of the clock.
static CLOCK: AtomicU64 = AtomicU64::new(0);

/// Begins a session.
pub fn begin() {
    for sum in [&CALLBACKS, &STACKS, &TIMED_STACKS, &READING] {
        sum.store(0, Relaxed);
    }
    BEFORE.store(sys::clock(libc::CLOCK_PROCESS_CPUTIME_ID), Relaxed);
    let shortest = (0..16).map(|_| sys::now().abs_diff(sys::now())).min();
    CLOCK.store(shortest.unwrap_or(0), Relaxed);
}

thread_local! {
    static COUNTDOWN: Countdown = const { Countdown::new() };
    /// The start of a timed call, and whether it is recorded; 0 outside timed calls.
    static CALL: Cell<(u64, bool)> = const { Cell::new((0, false)) };
}

/// A callback, timed if it is sampled.
pub struct Callback {
    start: Option<u64>,
    /// Readings of the clock within it.
    readings: Cell<u64>,
}

impl Callback {
    /// Begins a callback.
    #[inline]
    pub fn begin() -> Self {
        let start = COUNTDOWN.with(|countdown| countdown.is_due(SAMPLING)).then(sys::now);
        Self { start, readings: Cell::new(1) }
    }

    /// Runs the part of the callback that takes the stack.
    #[inline(always)]
    pub fn taking_stack(&self, take: impl FnOnce()) {
        let start = self.start.map(|_| sys::now());
        take();
        if let Some(start) = start {
            self.readings.set(self.readings.get() + 2);
            count(&STACKS, sys::now() - start, 1);
            add(&TIMED_STACKS, 1);
        }
    }

    /// Begins to time the call itself, if this callback is sampled and the cost is limited.
    #[inline]
    pub fn begin_call(&self, recorded: bool) {
        if self.start.is_some() && sampling::is_limited() {
            CALL.set((sys::now(), recorded));
        }
    }

    /// Ends it.
    #[inline]
    pub fn end(self) {
        if let Some(start) = self.start {
            count(&CALLBACKS, sys::now() - start, self.readings.get());
            add(&TIMED_CALLBACKS, 1);
        }
    }
}

/// The last durations of timed calls, without and with records.
static CALLS: [Durations; 2] = [const { Durations::new() }; 2];

/// The last durations of calls.
struct Durations {
    next: AtomicU32,
    last: [AtomicU32; Durations::KEPT],
}

impl Durations {
    const KEPT: usize = 128;
    /// Fewer are not meaningful.
    const LEAST: usize = 32;

    const fn new() -> Self {
        Self { next: AtomicU32::new(0), last: [const { AtomicU32::new(0) }; Self::KEPT] }
    }

    fn push(&self, ns: u64) {
        let at = self.next.fetch_add(1, Relaxed) as usize % Self::KEPT;
        self.last[at].store(ns.clamp(1, u64::from(u32::MAX)) as u32, Relaxed);
    }

    /// The median: calls that wait for room on the GPU do not distort it.
    fn median(&self) -> Option<u64> {
        let mut all = [0; Self::KEPT];
        let mut count = 0;
        for value in self.last.iter().map(|value| value.load(Relaxed)).filter(|value| *value > 0) {
            all[count] = value;
            count += 1;
        }
        let known = &mut all[..count];
        known.sort_unstable();
        (count >= Self::LEAST).then(|| u64::from(known[count / 2]))
    }
}

/// Ends a timed call.
#[inline]
pub fn end_call() {
    let (start, recorded) = CALL.get();
    if start != 0 {
        CALL.set((0, false));
        CALLS[usize::from(recorded)].push(sys::now() - start);
    }
}

/// Returns CUPTI's time for the records of one launch: how much longer calls take while records are on. `None` until
/// both were measured.
pub fn record_cost() -> Option<u64> {
    let [without, with] = &CALLS;
    Some(with.median()?.saturating_sub(without.median()?))
}

/// Returns the number of callbacks so far, estimated from the samples.
pub fn callbacks() -> u64 {
    TIMED_CALLBACKS.load(Relaxed) * u64::from(SAMPLING)
}

/// Returns the mean time of taking a stack.
pub fn mean_stack() -> u64 {
    STACKS.load(Relaxed) / u64::from(SAMPLING) / TIMED_STACKS.load(Relaxed).max(1)
}

/// Adds a sample that contains this many readings of the clock.
fn count(sum: &AtomicU64, ns: u64, readings: u64) {
    if ns <= LONGEST {
        add(sum, ns.saturating_sub(readings * CLOCK.load(Relaxed)) * u64::from(SAMPLING));
    }
}

/// Adds the time since `start` to that of reading records.
pub fn count_reading(start: u64) {
    add(&READING, sys::now() - start);
}

/// Returns the cost so far. Called by the sender.
pub fn snapshot() -> wire::Cost {
    wire::Cost {
        process_ns: sys::clock(libc::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(BEFORE.load(Relaxed)),
        callbacks_ns: CALLBACKS.load(Relaxed).max(STACKS.load(Relaxed)),
        stacks_ns: STACKS.load(Relaxed),
        sender_ns: sys::clock(libc::CLOCK_THREAD_CPUTIME_ID) + READING.load(Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median needs enough calls, and ignores a few that wait.
    #[test]
    fn the_median_ignores_calls_that_wait() {
        let durations = Durations::new();
        (0..31).for_each(|_| durations.push(4_000));
        assert_eq!(durations.median(), None);
        (0..10).for_each(|_| durations.push(50_000_000));
        assert_eq!(durations.median(), Some(4_000));
    }

    /// A callback that was interrupted does not count.
    #[test]
    fn interrupted_callbacks_do_not_count() {
        let sum = AtomicU64::new(0);
        count(&sum, 1000, 0);
        count(&sum, LONGEST + 1, 0);
        assert_eq!(sum.load(Relaxed), 32_000);
    }
}
