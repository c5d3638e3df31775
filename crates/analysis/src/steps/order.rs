//! Launches in the order in which their thread made them. In a recording they are nearly in that order: one whose stack was taken
//! by the probe may be read later than others that the process itself reported.

use std::collections::VecDeque;

use model::event::{Launch, ProcessId, StackId};

use super::threads::Threads;

/// How many launches of a thread wait for earlier ones.
const WAITING: usize = 1 << 13;

/// A launch, as far as the order matters.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    /// The process.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// When.
    pub time: u64,
    /// The stack.
    pub stack: StackId,
}

/// Puts launches in order.
#[derive(Debug, Default)]
pub struct Order {
    threads: Threads<VecDeque<Next>>,
}

impl Order {
    /// Adds a launch. Returns the one that is next in its thread, if any waits no longer.
    #[inline]
    pub fn push(&mut self, launch: &Launch) -> Option<Next> {
        let Launch { process, tid, time, stack, .. } = *launch;
        let waiting = self.threads.get(process, tid);
        let next = Next { process, tid, time, stack };
        if waiting.back().is_none_or(|last| last.time <= time) {
            waiting.push_back(next);
        } else {
            waiting.insert(waiting.partition_point(|earlier| earlier.time <= time), next);
        }
        if waiting.len() > WAITING { waiting.pop_front() } else { None }
    }

    /// Returns the launches that still wait, thread by thread.
    pub fn finish(self) -> impl Iterator<Item = Next> {
        self.threads.into_all().flatten()
    }
}
