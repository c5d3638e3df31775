//! The order of processes.

/// The sort key of processes, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Live memory.
    Memory,
    /// Launches per second.
    Launches,
    /// Bytes per second, in both directions.
    Bandwidth,
    /// Failed calls.
    Errors,
    /// The pid, smallest first.
    Pid,
}

impl Sort {
    /// Returns the key after this one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Memory => Self::Launches,
            Self::Launches => Self::Bandwidth,
            Self::Bandwidth => Self::Errors,
            Self::Errors => Self::Pid,
            Self::Pid => Self::Memory,
        }
    }

    /// Returns its name in the status line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "live memory",
            Self::Launches => "launches",
            Self::Bandwidth => "bandwidth",
            Self::Errors => "errors",
            Self::Pid => "pid",
        }
    }
}
