//! Which call handed over the work of a thread.

use crate::contract::types::handover_cause;

/// The call that handed over the work of a thread, if the thread does such work. Its stack says whether it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// None is in progress.
    None,
    /// The call with this id.
    Call(u32),
    /// One of several in progress.
    Unknown,
}

impl Cause {
    /// Converts the number that the programs use.
    pub fn of(cause: u32) -> Self {
        match handover_cause(cause) {
            handover_cause::CAUSE_NONE => Self::None,
            handover_cause::CAUSE_UNKNOWN => Self::Unknown,
            handover_cause(id) => Self::Call(id),
        }
    }
}
