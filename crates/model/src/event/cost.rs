//! The cost of collecting.

use serde::Serialize;

use super::SessionId;

/// CPU time outside the sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// CPU time of warpscope itself, on CPUs that the program does not use at that time.
    pub collector_ns: u64,
    /// CPU time of the command and of its children that it waited for; 0 if unknown.
    pub program_ns: u64,
}

/// The CPU time of a session's process since the session began, and the part of it that is the injected library's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCost {
    /// The session.
    pub session: SessionId,
    /// CPU time of the process.
    pub process_ns: u64,
    /// Time in the library's callbacks, estimated from a sample of them. Includes `stacks_ns`.
    pub callbacks_ns: u64,
    /// Of that, the time in which the stacks of launches were taken, including the trap.
    pub stacks_ns: u64,
    /// CPU time of the library's thread, which makes CUPTI deliver its records and sends them.
    pub sender_ns: u64,
}

/// Time in a BPF program, as it measured it itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramCost {
    /// The program.
    pub program: CostProgram,
    /// Estimated number of runs.
    pub runs: u64,
    /// Estimated time of these runs, without the kernel's work to start the program, such as a trap.
    pub ns: u64,
}

/// A BPF program whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum CostProgram {
    /// The launch marker.
    Launch = 0,
    /// The CPU sampler.
    Sample = 1,
    /// The entry of a traced call.
    Enter = 2,
    /// The return of a traced call.
    Leave = 3,
    /// A counted event.
    Hit = 4,
}

impl CostProgram {
    /// Returns the program with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Launch, Self::Sample, Self::Enter, Self::Leave, Self::Hit].into_iter().find(|p| *p as u8 == number)
    }
}
