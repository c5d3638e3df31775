//! Hardware counters of single launches: `record --limits`.

use super::SessionId;

/// What a hardware counter counted while the kernel of a launch ran alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounter {
    /// The CUDA process.
    pub session: SessionId,
    /// The correlation id of the launch.
    pub correlation: u32,
    /// The metric, a place in [`crate::limits::METRICS`].
    pub metric: u32,
    /// Its value, the bits of an `f64`.
    pub value: u64,
}

/// How a session measured launches; each replaces the session's previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitTotals {
    /// The CUDA process.
    pub session: SessionId,
    /// Launches that were measured.
    pub measured: u64,
    /// Launches that were measured, but did not run alone: they have no values.
    pub disturbed: u64,
    /// Launches that were measured, but whose values CUPTI did not return.
    pub lost: u64,
    /// Launches that were not measured because a stream was being captured.
    pub captured: u64,
    /// Launches of communication kernels, which are never measured.
    pub communication: u64,
    /// Time that measuring took in the program's threads.
    pub took_ns: u64,
}
