//! CUPTI's clock is CLOCK_REALTIME; recordings use CLOCK_MONOTONIC.

use std::time::{Duration, Instant};

/// How often the difference is read again: the wall clock is adjusted while it runs.
const EVERY: Duration = Duration::from_secs(1);

/// The difference between the clocks.
pub struct Clock {
    difference: u64,
    read: Instant,
}

impl Clock {
    pub fn new() -> Self {
        Self { difference: difference(), read: Instant::now() }
    }

    /// Reads the difference again, if it is time to.
    pub fn refresh(&mut self) {
        if self.read.elapsed() >= EVERY {
            *self = Self::new();
        }
    }

    /// Returns the time of the recording's clock.
    pub fn monotonic(&self, realtime: u64) -> u64 {
        realtime.wrapping_sub(self.difference)
    }
}

/// Reads both clocks, the second between two readings of the first. Of a few tries, the one with the shortest time between
/// those is the best.
fn difference() -> u64 {
    let once = || {
        let (before, real, after) = (now(libc::CLOCK_MONOTONIC), now(libc::CLOCK_REALTIME), now(libc::CLOCK_MONOTONIC));
        (after - before, real.wrapping_sub(before + (after - before) / 2))
    };
    (0..5).map(|_| once()).min().map_or(0, |(_, difference)| difference)
}

fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
