//! The tables that can be printed or exported.

/// A table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// Kernels by time.
    #[default]
    Kernels,
    /// Classes of kernels: gemm, attention, elementwise and so on.
    Classes,
    /// Phases of training or inference: forward, backward, optimizer and so on.
    Phases,
    /// Call paths by the GPU time that they caused.
    Paths,
    /// The same by user code.
    UserPaths,
    /// Lines of user code: the GPU time that they caused, and their CPU time.
    Lines,
    /// Steps: the iterations of the program's loop, slowest first.
    Steps,
    /// CPU functions by self time.
    Functions,
    /// Threads: CPU time and launches.
    Threads,
    /// Streams by GPU time.
    Streams,
    /// Ranks of a distributed program.
    Ranks,
    /// Operations of communicators (NCCL), by kind.
    Collectives,
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
    /// What limits each kernel at each line, by counters of single launches.
    Limits,
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

impl Table {
    /// All tables, and their names.
    pub const ALL: [(&'static str, Self); 27] = [
        ("kernels", Self::Kernels),
        ("classes", Self::Classes),
        ("phases", Self::Phases),
        ("paths", Self::Paths),
        ("user-paths", Self::UserPaths),
        ("lines", Self::Lines),
        ("steps", Self::Steps),
        ("functions", Self::Functions),
        ("threads", Self::Threads),
        ("streams", Self::Streams),
        ("ranks", Self::Ranks),
        ("collectives", Self::Collectives),
        ("copies", Self::Copies),
        ("devices", Self::Devices),
        ("occupancy", Self::Occupancy),
        ("energy", Self::Energy),
        ("counters", Self::Counters),
        ("verdicts", Self::Verdicts),
        ("limits", Self::Limits),
        ("stalls", Self::Stalls),
        ("instructions", Self::Instructions),
        ("idle", Self::Idle),
        ("waits", Self::Waits),
        ("memory", Self::Memory),
        ("calls", Self::Calls),
        ("requests", Self::Requests),
        ("ledger", Self::Ledger),
    ];

    /// Says what would have filled an empty table.
    pub fn filled_by(self) -> &'static str {
        match self {
            Self::Kernels
            | Self::Classes
            | Self::Phases
            | Self::Paths
            | Self::UserPaths
            | Self::Copies
            | Self::Streams
            | Self::Devices => "no GPU work was recorded: record a program that uses CUDA, without --cpu-only",
            Self::Lines => "no GPU work and no CPU samples were recorded",
            Self::Steps => {
                "no loop has most of the launches of its process: select what a step is with --step FUNCTION or --step nvtx:NAME"
            }
            Self::Functions => "no CPU samples were recorded: record without --gpu-only",
            Self::Threads => "no CPU samples and no launches were recorded",
            Self::Ranks => "no process has a rank: torchrun, mpirun and srun set them",
            Self::Collectives => {
                "no operation of a communicator is known: record a program that loads NCCL (record -p does not see its calls)"
            }
            Self::Occupancy => "no kernel was recorded on a device whose resources are known",
            Self::Energy => "no energy was recorded: record with --energy",
            Self::Counters => "no counters were recorded: record with --counters",
            Self::Verdicts => "no counters were sampled by CUPTI: record with --counters",
            Self::Limits => "no launch was measured: record with --limits",
            Self::Stalls => "no samples inside kernels were recorded: record with --stalls",
            Self::Instructions => "no instructions were recorded: record with --stalls, where nvdisasm is installed",
            Self::Idle => "no GPU worked, or GPU work was recorded only part of the time (--max-overhead, trace)",
            Self::Waits => "no time off the CPU was recorded: record with --off-cpu",
            Self::Memory => "no GPU memory was recorded: record with --memory",
            Self::Calls => "no calls were traced: use warpscope trace",
            Self::Requests => "no driver requests were traced: use warpscope trace --driver",
            Self::Ledger => "the ledger is empty",
        }
    }
}
