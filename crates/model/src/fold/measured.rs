//! The launches that were measured with hardware counters. A launch is announced before its kernel's record arrives; its
//! values arrive later.

use rustc_hash::FxHashMap;

use crate::{
    event::{KernelCounter, SessionId},
    limits::{ANNOUNCED, KernelLimits, LimitKey},
};

/// The most launches that wait for their kernels or values, and the most values of one.
const MAX_WAITING: usize = 1 << 16;
const MAX_VALUES: usize = 64;
/// The most sums.
const MAX_SUMS: usize = 1 << 15;

/// A launch that was measured.
#[derive(Default)]
struct Launch {
    values: Vec<(u32, f64)>,
    /// What ran, and for how long.
    ran: Option<(LimitKey, u64)>,
}

/// Launches that were measured, and sums over them.
#[derive(Default)]
pub struct MeasuredLaunches {
    /// By session and correlation id.
    waiting: FxHashMap<(SessionId, u32), Launch>,
    sums: KernelLimits,
}

impl MeasuredLaunches {
    /// Whether no launch waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A launch was announced, or a value has arrived.
    pub fn counted(&mut self, counter: &KernelCounter) {
        let key = (counter.session, counter.correlation);
        if self.waiting.len() >= MAX_WAITING && !self.waiting.contains_key(&key) {
            self.settle();
            if self.waiting.len() >= MAX_WAITING {
                return;
            }
        }
        let launch = self.waiting.entry(key).or_default();
        if counter.metric != ANNOUNCED && launch.values.len() < MAX_VALUES {
            launch.values.push((counter.metric, f64::from_bits(counter.value)));
        }
    }

    /// A kernel ran.
    pub fn ran(&mut self, (session, correlation): (SessionId, u32), key: impl FnOnce() -> LimitKey, ns: u64) {
        if let Some(launch) = self.waiting.get_mut(&(session, correlation)) {
            launch.ran = Some((key(), ns));
        }
    }

    /// Adds up what is complete.
    fn settle(&mut self) {
        let Self { waiting, sums } = self;
        waiting.retain(|_, launch| {
            let Some((key, ns)) = launch.ran.filter(|_| !launch.values.is_empty()) else { return true };
            if sums.len() < MAX_SUMS || sums.contains_key(&key) {
                sums.entry(key).or_default().add(&launch.values, ns);
            }
            false
        });
    }

    /// Returns the sums.
    pub fn finish(mut self) -> KernelLimits {
        self.settle();
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use cuda::occupancy::Shape;

    use super::*;
    use crate::{
        event::{ProcessId, StackId},
        limits::metric,
    };

    const SESSION: SessionId = SessionId(1);

    fn key(stack: u64) -> LimitKey {
        let shape = Shape::of([1, 1, 1], [32, 1, 1], 8, 0);
        LimitKey { process: ProcessId(4), stack: StackId(stack), kernel: 2, device: 0, shape }
    }

    /// Check that the values of a launch are those of the kernel that it ran, in any order once it is announced, and that a
    /// launch without values is none.
    #[test]
    fn values_find_their_kernel() {
        let mut launches = MeasuredLaunches::default();
        let counted = |launches: &mut MeasuredLaunches, correlation, metric, value: f64| {
            launches.counted(&KernelCounter { session: SESSION, correlation, metric, value: value.to_bits() });
        };
        launches.ran((SESSION, 6), || key(6), 100);
        for correlation in [7, 8, 9] {
            counted(&mut launches, correlation, ANNOUNCED, 0.0);
        }
        launches.ran((SESSION, 7), || key(7), 100);
        launches.ran((SESSION, 9), || key(9), 100);
        counted(&mut launches, 7, metric::INSTRUCTIONS as u32, 10.0);
        counted(&mut launches, 8, metric::INSTRUCTIONS as u32, 20.0);
        launches.ran((SESSION, 8), || key(7), 100);
        let sums = launches.finish();
        assert_eq!(sums.len(), 1);
        let sum = &sums[&key(7)];
        assert_eq!((sum.launches, sum.value(metric::INSTRUCTIONS)), (2, Some(30.0 * 1e9 / 200.0)));
    }

    /// Check that memory is bounded: complete launches make room for others, and without room others are not kept.
    #[test]
    fn memory_is_bounded() {
        let mut launches = MeasuredLaunches::default();
        for correlation in 0..2 * MAX_WAITING as u32 {
            for metric in [ANNOUNCED, metric::TIME as u32] {
                launches.counted(&KernelCounter { session: SESSION, correlation, metric, value: 1 });
            }
            if correlation % 2 == 0 {
                launches.ran((SESSION, correlation), || key((correlation % 3).into()), 10);
            }
        }
        assert!(launches.waiting.len() <= MAX_WAITING);
        assert!(launches.finish().values().map(|sum| sum.launches).sum::<u64>() > MAX_WAITING as u64 / 2);
    }
}
