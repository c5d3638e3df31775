//! Steps: the iterations of a program's loop, as intervals of its threads.

use crate::event::ProcessId;

/// The steps of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Those of each thread that has any, most steps first.
    pub series: Vec<Series>,
    /// Other loops that could be steps, outer ones first, by their place and their number of iterations.
    pub levels: Vec<Level>,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Where its iterations begin: the line of user code, or the function.
    pub place: String,
    /// Iterations.
    pub iterations: u64,
}

/// The steps of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The process.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// What they are steps of: `train (train.py:31)`.
    pub place: String,
    /// In order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Its number in its thread, from 1.
    pub number: u64,
    /// Its first launch.
    pub start: u64,
    /// Where the next one began. Of the last one, when its GPU work had ended.
    pub end: u64,
    /// The next one followed: all of it was recorded.
    pub is_followed: bool,
    /// What it launched.
    pub work: StepWork,
    /// Time in which a GPU worked for the process.
    pub busy_ns: u64,
}

/// The GPU work that a step launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepWork {
    /// Launches.
    pub launches: u64,
    /// Kernels.
    pub kernels: u64,
    /// Their time.
    pub kernel_ns: u64,
    /// Copies.
    pub copies: u64,
    /// Their time.
    pub copy_ns: u64,
    /// Bytes copied.
    pub copy_bytes: u64,
}

impl Step {
    /// Returns its duration.
    pub fn ns(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns the time in which no GPU worked for the process.
    pub fn idle_ns(&self) -> u64 {
        self.ns().saturating_sub(self.busy_ns)
    }
}
