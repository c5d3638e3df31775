//! Measures the library's own cost.
//!
//! Callbacks are timed by sampling: on average one in [`SAMPLING`], chosen at random for each thread, so that loops in
//! the program do not repeat the same choice. A sample stands for [`SAMPLING`] callbacks. The clock is CLOCK_MONOTONIC,
//! which needs no system call.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sys;
use crate::totals::add;

/// The mean number of callbacks that one sample stands for.
const SAMPLING: u32 = 32;

/// A callback that took longer was interrupted: its time is that of other threads.
const LONGEST: u64 = 200_000;

static CALLBACKS: AtomicU64 = AtomicU64::new(0);
static STACKS: AtomicU64 = AtomicU64::new(0);
/// Time of reading records on threads other than the sender.
static READING: AtomicU64 = AtomicU64::new(0);
/// CPU time of the process when the session began.
static BEFORE: AtomicU64 = AtomicU64::new(0);
/// The time between two readings of the clock.
static CLOCK: AtomicU64 = AtomicU64::new(0);

/// Begins a session.
pub fn begin() {
    BEFORE.store(sys::clock(libc::CLOCK_PROCESS_CPUTIME_ID), Relaxed);
    let shortest = (0..16).map(|_| sys::now().abs_diff(sys::now())).min();
    CLOCK.store(shortest.unwrap_or(0), Relaxed);
}

/// Chooses at random which events are sampled.
struct Countdown {
    /// Events until the next sample.
    left: Cell<u32>,
    /// The state of the generator; 0 before its first use.
    random: Cell<u32>,
}

impl Countdown {
    const fn new() -> Self {
        Self { left: Cell::new(0), random: Cell::new(0) }
    }

    /// Whether this event is sampled. The distances are uniform with a mean of [`SAMPLING`].
    #[inline]
    fn is_due(&self) -> bool {
        let left = self.left.get();
        if left > 1 {
            self.left.set(left - 1);
            return false;
        }
        self.draw();
        left == 1
    }

    /// Draws the distance to the next sample.
    #[cold]
    #[inline(never)]
    fn draw(&self) {
        let mut state = self.random.get();
        if state == 0 {
            state = (sys::now() as u32 ^ (core::ptr::from_ref(self).addr() >> 4) as u32) | 1;
        }
        // Xorshift, by Marsaglia.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        self.random.set(state);
        self.left.set(1 + state % (2 * SAMPLING - 1));
    }
}

thread_local! {
    static COUNTDOWN: Countdown = const { Countdown::new() };
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
        let start = COUNTDOWN.with(Countdown::is_due).then(sys::now);
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
        }
    }

    /// Ends it.
    #[inline]
    pub fn end(self) {
        if let Some(start) = self.start {
            count(&CALLBACKS, sys::now() - start, self.readings.get());
        }
    }
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

    /// One event in 32 is sampled, whatever the period of the program's loop: every position of a loop of 8 or 32
    /// events is sampled equally often.
    #[test]
    fn samples_do_not_follow_loops() {
        const EVENTS: u32 = 1 << 20;
        for period in [8_u32, 32] {
            let countdown = Countdown::new();
            countdown.random.set(0x2545_f491);
            let mut sampled = vec![0_u32; period as usize];
            for event in 0..EVENTS {
                sampled[(event % period) as usize] += u32::from(countdown.is_due());
            }
            let expected = f64::from(EVENTS / SAMPLING / period);
            for count in sampled {
                let error = (f64::from(count) - expected).abs() / expected;
                assert!(error < 0.15, "{count} of {expected} expected with a period of {period}");
            }
        }
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
