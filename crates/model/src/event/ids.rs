//! Numbers that identify processes, stacks and sessions within a recording.

use serde::Serialize;

/// One program image in one process: created at fork or exec, ended at exec or exit. Unlike a pid it is never reused
/// within a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ProcessId(pub u32);

/// A distinct call stack of one process image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct StackId(pub u64);

impl StackId {
    /// Stands for the stack of a launch whose stack was not taken, because stacks were sampled.
    pub const NOT_SAMPLED: Self = Self(u64::MAX);
}

/// The connection of one injected library: one CUDA process. The first is 0; numbers are dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SessionId(pub u32);
