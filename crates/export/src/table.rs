//! The tables that can be printed or exported.

/// A table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// Kernels by time.
    #[default]
    Kernels,
    /// Call paths by the GPU time that they caused.
    Paths,
    /// The same by user code.
    UserPaths,
    /// Lines of user code: the GPU time that they caused, and their CPU time.
    Lines,
    /// CPU functions by self time.
    Functions,
    /// Threads: CPU time and launches.
    Threads,
    /// Streams by GPU time.
    Streams,
    /// Ranks of a distributed program.
    Ranks,
    /// Copies by direction.
    Copies,
    /// GPUs.
    Devices,
    /// Kernels by shape: how they fill the device, and what limits them.
    Occupancy,
    /// Energy by user code and kernel, and of idle time.
    Energy,
    /// Metrics of the counters of GPUs.
    Counters,
    /// What limits each kernel, by those counters.
    Verdicts,
    /// Source lines of kernels, by GPU time, and why their warps waited.
    Stalls,
    /// Instructions of kernels, by GPU time, and why their warps waited.
    Instructions,
    /// Why GPUs were idle.
    Idle,
    /// Time off the CPU, by line of user code and reason.
    Waits,
    /// Who held GPU memory at its peak and at the end.
    Memory,
    /// Traced calls by function.
    Calls,
    /// Requests to the driver, by command.
    Requests,
    /// The ledger.
    Ledger,
}
