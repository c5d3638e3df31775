//! Collects what communicators did: calls, and the kernels that execute them.

use crate::{
    causes::Joined,
    clocks::Clocks,
    communication::{Communication, Kernel, Parts, join::join},
    event::{Communicator, CommunicatorCall},
};

/// The most members of communicators that are kept.
const MOST_COMMUNICATORS: usize = 1 << 18;

/// What communicators did.
#[derive(Default)]
pub struct CommunicationWork {
    communicators: Vec<Communicator>,
    parts: Parts,
    kernels: u64,
    clocks: Clocks,
}

impl CommunicationWork {
    /// Keeps as much as a recording may contain.
    pub fn keep_all(&mut self) {
        self.parts.keep_all();
    }

    /// Sets the clocks of the hosts.
    pub fn set_clocks(&mut self, clocks: Clocks) {
        self.clocks = clocks;
    }

    /// Adds a member of a communicator.
    pub fn member(&mut self, communicator: &Communicator) {
        if self.communicators.len() < MOST_COMMUNICATORS {
            self.communicators.push(*communicator);
        }
    }

    /// Adds a call.
    pub fn call(&mut self, call: &CommunicatorCall) {
        self.parts.call(call);
    }

    /// Adds a communication kernel. Those of graphs were called when the graph was captured, not when it was launched.
    pub fn ran(&mut self, joined: &Joined<'_>) {
        self.kernels += 1;
        let (Some(launch), activity) = (joined.launch, joined.activity) else { return };
        if !self.communicators.is_empty() && activity.graph_node == 0 {
            let (session, start, end) = (activity.session, activity.start, activity.end);
            let (tid, launched, stack) = (launch.tid, launch.time, launch.stack);
            self.parts.kernel(Kernel { session, tid, launched, stack, start, end });
        }
    }

    /// Joins what belongs together.
    pub fn finish(mut self) -> Communication {
        join(&mut self.parts, &self.communicators, self.kernels, self.clocks)
    }
}
