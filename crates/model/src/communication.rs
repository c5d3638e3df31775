//! Which communication kernels belong to the same operation, and how long its members waited for each other.
//!
//! A program calls operations of communicators ([`CommunicatorCall`]); each thread then launches the kernels that execute them.
//! What a thread calls up to a kernel, and the kernels up to its next call, are a *part*: usually one of each, several in a
//! group. [`link`] finds the parts.
//!
//! ```text
//!   calls     A 17        B 3  B 4                C 0
//!   launches        k1              k2  k3              k4
//!   parts     {A 17: k1}  {B 3, B 4: k2, k3}      {C 0: k4}
//! ```
//!
//! All members of a communicator call its operations in the same order, so the parts with the same communicator and number on
//! each of them are one [`Operation`]; sends belong to receives. [`mod@join`] finds these. No part of an operation ends before all
//! have begun: until then, the members that are there wait.
//!
//! ```text
//!   rank 0   --[####====]--      # waits for rank 1    = all take part
//!   rank 1   ------[====]--
//! ```

pub mod clocks;
pub mod join;
mod link;

use std::collections::BTreeMap;

pub use self::link::{Kernel, Part, Parts};
use crate::clocks::Clocks;
use crate::event::{self, PointId, SessionId, StackId};

/// The communicators of a recording and what they did.
#[derive(Clone, Debug, Default)]
pub struct Communication {
    /// Communicators, by their number.
    pub communicators: BTreeMap<u64, Members>,
    /// Operations in which all members took part, by the start of the last one.
    pub operations: Vec<Operation>,
    /// The parts of all operations.
    pub members: Vec<Member>,
    /// Communication kernels.
    pub kernels: u64,
    /// Those of them whose calls are not known.
    pub unidentified: u64,
    /// Identified kernels of operations of which a member is missing in the recording.
    pub incomplete: u64,
    /// Where members called different operations. Nothing after that is joined in that communicator.
    pub mismatches: Vec<Mismatch>,
    /// Where recorded members called what another recorded one did not call any more: the first such call of a communicator.
    pub missing: Vec<Missing>,
    /// Calls and kernels that did not fit.
    pub dropped: u64,
    /// The clocks of the hosts.
    pub clocks: Clocks,
    /// Members that began before another one on another host, but by less than the clocks may be wrong: nobody is said to have
    /// waited.
    pub within_bound: u64,
    /// What the processes that made others wait did instead, if somebody looked for it: that takes another pass over the events.
    pub reasons: BTreeMap<SessionId, Reasons>,
}

/// Why a process delayed operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// As long as its GPU had been idle since the last operation of the communicator, at most the delay: the host was late.
    pub host_ns: u64,
    /// The rest of the delay: its GPU had been busy.
    pub gpu_ns: u64,
    /// Of `host_ns`, what the thread ran while its GPU was idle, by samples: time and samples.
    pub ran: BTreeMap<StackId, (u64, u64)>,
    /// Of `host_ns`, what it waited for meanwhile.
    pub waited: BTreeMap<(StackId, PointId), u64>,
}

/// A communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// How many it has.
    pub size: u32,
    /// Those that were recorded, by their number.
    pub sessions: BTreeMap<u32, SessionId>,
}

/// An operation, or a group of operations that the same kernels execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The communicator.
    pub communicator: u64,
    /// What it is: the operation of the call; [`event::Operation::Other`] for a group of different ones.
    pub operation: event::Operation,
    /// The number of the call, the first of a group.
    pub number: u64,
    /// The size passed by all calls of a member, added up: the most of any member.
    pub bytes: u64,
    /// The first of its parts in [`Communication::members`], and how many there are.
    pub members: (u32, u32),
}

/// A part of an operation: the work of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The CUDA process.
    pub session: SessionId,
    /// The thread that launched its kernels.
    pub tid: u32,
    /// The first launch.
    pub launched: u64,
    /// Its stack.
    pub stack: StackId,
    /// The start of its first kernel.
    pub start: u64,
    /// The end of its last kernel.
    pub end: u64,
    /// How long it waited for the last of those that it communicates with.
    pub waited: u64,
    /// That one: an index into the members of the operation, its own if it waited for nobody.
    pub waited_for: u32,
    /// A member that sends to it, in an operation of sends and receives; otherwise its own index.
    pub from: u32,
}

/// Members of a communicator called different operations at the same place of their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The communicator.
    pub communicator: u64,
    /// The number of the operation.
    pub number: u64,
    /// What each member called.
    pub called: Vec<Called>,
}

/// What a member called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The CUDA process.
    pub session: SessionId,
    /// What.
    pub operation: event::Operation,
    /// The size that was passed.
    pub bytes: u64,
    /// Where its kernel was launched; absent if none ran.
    pub stack: Option<StackId>,
}

impl Called {
    /// Returns what all members must agree on.
    pub fn what(&self) -> (event::Operation, u64) {
        (self.operation, self.bytes)
    }
}

/// A call that members of a communicator made and others did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The communicator.
    pub communicator: u64,
    /// The number of the call.
    pub number: u64,
    /// What was called.
    pub operation: event::Operation,
    /// When the first member called it.
    pub time: u64,
    /// The members that called it.
    pub present: Vec<SessionId>,
    /// Those that did not, nor anything later.
    pub absent: Vec<SessionId>,
    /// The last call of the first of these, and where its kernel was launched; absent if it called nothing.
    pub last: Option<(u64, Option<StackId>)>,
}

impl Communication {
    /// Whether any operation could be identified.
    pub fn is_identified(&self) -> bool {
        self.unidentified < self.kernels
    }

    /// Returns the parts of an operation.
    pub fn members_of(&self, operation: &Operation) -> &[Member] {
        let (first, count) = operation.members;
        self.members.get(first as usize..).and_then(|rest| rest.get(..count as usize)).unwrap_or_default()
    }
}

impl Operation {
    /// When the last of its parts began; 0 without parts.
    pub fn all_there(members: &[Member]) -> u64 {
        members.iter().map(|member| member.start).max().unwrap_or(0)
    }

    /// How long all members took part: from the start of the last one to the end of the first one.
    pub fn transfer(members: &[Member]) -> u64 {
        let end = members.iter().map(|member| member.end).min().unwrap_or(0);
        end.saturating_sub(Self::all_there(members))
    }
}

#[cfg(test)]
mod tests;
