//! Removes stacks that are no longer needed. If they occur again, they are sent again.
//!
//! Before the flight recorder removes old stacks, it invalidates those that threads know, and reads what the threads
//! have reported.

use std::collections::HashSet;

use model::event::{ProcessId, StackId};

use super::parts::Collector;
use crate::sink::Sink;

impl<S: Sink> Collector<S> {
    /// Removes the stacks that the sink no longer needs.
    pub(super) fn forget_unused(&mut self) {
        if !self.sink.must_forget() {
            return;
        }
        // Launches that threads have reported until now need them.
        if let Some(sessions) = &mut self.sessions {
            sessions.forget_known();
            sessions.forget_python();
        }
        self.read_reported();
        self.take_reported(u64::MAX);
        let Some(gone) = self.sink.forget_stacks() else { return };
        let removed: HashSet<StackId> = gone.iter().map(|(_, stack)| *stack).collect();
        self.forget_stacks(&gone, &HashSet::new(), &|stack| !removed.contains(&stack));
    }

    /// Removes these stacks, and all Python parts of their processes but `python`. Combined stacks that `keep` accepts are
    /// not sent again.
    pub fn forget_stacks(
        &mut self,
        gone: &[(ProcessId, StackId)],
        python: &HashSet<u64>,
        keep: &dyn Fn(StackId) -> bool,
    ) {
        if gone.is_empty() {
            return;
        }
        let owners: HashSet<ProcessId> = gone.iter().map(|(process, _)| *process).collect();
        let native: Vec<u64> = gone.iter().map(|(_, stack)| stack.0).collect();
        let mut python_gone = Vec::new();
        for owner in owners {
            self.unwinding.renew(owner);
            if let Some(pythons) = &mut self.pythons {
                python_gone.extend(pythons.forget_stacks(owner, python, keep));
            }
        }
        if let Some(handovers) = &mut self.handovers {
            handovers.forget_stacks(keep);
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.forget_known();
        }
        self.recorder.forget_stacks(&native, &python_gone);
    }
}
