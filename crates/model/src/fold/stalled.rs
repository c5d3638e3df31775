//! The launches of samples, if kernels are serialised.
//!
//! A kernel's samples arrive after it has run, and often after its launch was settled; but either may come first.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::{
    event::{Launch, ProcessId, SessionId, StackId, StallSamples},
    stalls::Stalls,
};

/// The maximum number of launches that are remembered, and of samples that wait for theirs. Serialised kernels are so slow
/// that this is enough for many seconds.
const MAX_LAUNCHES: usize = 1 << 20;
const MAX_WAITING: usize = 1 << 18;

/// A session, and the correlation id of a launch.
type Key = (SessionId, u32);

/// The launches that have run, and samples whose launch has not.
#[derive(Default)]
pub struct StalledLaunches {
    stacks: FxHashMap<Key, (ProcessId, StackId)>,
    /// The launches, the oldest first.
    order: VecDeque<Key>,
    waiting: FxHashMap<Key, Vec<StallSamples>>,
    waiting_count: usize,
}

impl StalledLaunches {
    /// A launch has run.
    pub fn ran(&mut self, launch: &Launch, stalls: &mut Stalls) {
        if !stalls.is_serialised(launch.session) || launch.stack.is_placeholder() {
            return;
        }
        let key = (launch.session, launch.correlation);
        if self.stacks.insert(key, (launch.process, launch.stack)).is_none() {
            self.order.push_back(key);
            if self.order.len() > MAX_LAUNCHES
                && let Some(oldest) = self.order.pop_front()
            {
                self.stacks.remove(&oldest);
            }
        }
        for samples in self.waiting.remove(&key).unwrap_or_default() {
            self.waiting_count -= 1;
            stalls.place(launch.process, launch.stack, &samples);
        }
    }

    /// Samples of a launch have arrived.
    pub fn sampled(&mut self, samples: &StallSamples, stalls: &mut Stalls) {
        if samples.correlation == 0 {
            return;
        }
        let key = (samples.at.session, samples.correlation);
        if let Some((process, stack)) = self.stacks.get(&key) {
            stalls.place(*process, *stack, samples);
        } else if self.waiting_count < MAX_WAITING {
            self.waiting_count += 1;
            self.waiting.entry(key).or_default().push(*samples);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Instruction, LaunchKind, StallTotals};

    /// Check that samples are those of the stack that launched their kernel, whatever came first, and that those of an
    /// unknown launch are counted.
    #[test]
    fn samples_find_their_launch() {
        let (mut launches, mut stalls) = (StalledLaunches::default(), Stalls::default());
        let session = SessionId(1);
        stalls.totals.insert(session, StallTotals { session, serialised: true, ..StallTotals::default() });
        let launch = |correlation, stack| Launch {
            session,
            correlation,
            kind: LaunchKind::Kernel,
            process: ProcessId(4),
            tid: 1,
            cpu: 0,
            time: 1,
            stack: StackId(stack),
            rate: 0,
        };
        let at = Instruction { session, cubin: 1, function: 2, offset: 16 };
        let add = |launches: &mut StalledLaunches, stalls: &mut Stalls, correlation, count| {
            let samples = StallSamples { at, reason: 3, count, correlation };
            stalls.add(&samples);
            launches.sampled(&samples, stalls);
        };
        launches.ran(&launch(7, 100), &mut stalls);
        add(&mut launches, &mut stalls, 7, 10);
        add(&mut launches, &mut stalls, 8, 5);
        add(&mut launches, &mut stalls, 9, 2);
        add(&mut launches, &mut stalls, 0, 1);
        assert_eq!(stalls.without_launch, 7);
        launches.ran(&launch(8, 200), &mut stalls);
        launches.ran(&launch(8, 200), &mut stalls);
        let sum = |stack| stalls.by_stack.get(&(ProcessId(4), StackId(stack), at, 3)).copied();
        assert_eq!((sum(100), sum(200), stalls.without_launch), (Some(10), Some(5), 2));
        assert_eq!(stalls.samples[&(at, 3)], 18);
    }

    /// Check that nothing is remembered of launches of other sessions.
    #[test]
    fn other_launches_are_not_kept() {
        let (mut launches, mut stalls) = (StalledLaunches::default(), Stalls::default());
        let launch = Launch {
            session: SessionId(1),
            correlation: 7,
            kind: LaunchKind::Kernel,
            process: ProcessId(4),
            tid: 1,
            cpu: 0,
            time: 1,
            stack: StackId(3),
            rate: 0,
        };
        launches.ran(&launch, &mut stalls);
        assert!(launches.stacks.is_empty());
    }
}
