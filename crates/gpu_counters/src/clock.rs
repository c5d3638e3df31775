//! The clock of recordings is CLOCK_MONOTONIC. NVML has no times; CUPTI's clock is CLOCK_REALTIME.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// How often the difference is read again: the wall clock is adjusted while it runs.
const EVERY: Duration = Duration::from_secs(1);

/// The difference between the clocks.
pub struct Clock {
    difference: Difference,
    read: Instant,
}

impl Clock {
    pub fn new() -> Self {
        Self { difference: Difference::read(), read: Instant::now() }
    }

    /// Reads the difference again, if it is time to.
    pub fn refresh(&mut self) {
        if self.read.elapsed() >= EVERY {
            self.difference = self.difference.or(Difference::read());
            self.read = Instant::now();
        }
    }

    /// Returns the time of the recording's clock.
    pub fn monotonic(&self, realtime: u64) -> u64 {
        realtime.wrapping_sub(self.difference.ns)
    }
}

/// A reading of the difference. It may be wrong by half the time that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    took: u64,
    ns: u64,
}

impl Difference {
    /// Reads both clocks, the second between two readings of the first. Of a few tries, the shortest is the best.
    fn read() -> Self {
        let once = || {
            let (before, real) = (now(), read(ClockId::Realtime));
            let took = now() - before;
            Self { took, ns: real.wrapping_sub(before + took / 2) }
        };
        (0..5).map(|_| once()).min().unwrap_or_else(once)
    }

    /// Returns the later reading if the clock was set meanwhile, and otherwise the one that is more exact. On a busy machine a
    /// reading may be interrupted: times would jump without a reason.
    fn or(self, later: Self) -> Self {
        let was_set = self.ns.abs_diff(later.ns) > self.took / 2 + later.took / 2;
        if was_set || later.took <= self.took { later } else { self }
    }
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a reading is replaced by a more exact one, and by a less exact one only if the clock was set.
    #[test]
    fn interrupted_readings_change_nothing() {
        let first = Difference { took: 100, ns: 1_000_000 };
        let (exact, interrupted) =
            (Difference { took: 80, ns: 1_000_020 }, Difference { took: 200_000, ns: 1_088_000 });
        assert_eq!((first.or(exact), first.or(interrupted)), (exact, first));
        let set = Difference { took: 200, ns: 1_088_000 };
        assert_eq!(first.or(set), set);
    }
}
