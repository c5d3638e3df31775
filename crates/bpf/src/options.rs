//! What to record.

use std::path::PathBuf;

/// What to record.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Samples per second on every CPU; `None` for no samples.
    pub sample_hz: Option<u32>,
    /// The marker function to watch.
    pub marker: Option<Marker>,
    /// Marker functions are added later.
    pub later_markers: bool,
    /// Size of the ring buffer in bytes, a power of two.
    pub ring_bytes: u32,
    /// Size of the ring buffer for raw stacks, a power of two; 16 MiB if `None`.
    pub raw_ring_bytes: Option<u32>,
    /// What to trace.
    pub tracing: Option<Tracing>,
    /// Count hits of events, with room for this many distinct (place, process image, stack) keys in the kernel; `None`
    /// for no events.
    pub hits: Option<u32>,
    /// Sum the time off the CPU, too, and keep the stacks of waits of at least this many nanoseconds. Needs `hits`.
    pub off_cpu: Option<u64>,
    /// Find the calls that hand work to other threads.
    pub handover: bool,
    /// Find the forward code that made the parts of that work, too.
    pub forward: bool,
    /// Record the memory of PyTorch's caching allocator.
    pub tensors: bool,
    /// Running processes to follow; they become the images 1, 2 and so on.
    pub found: Vec<u32>,
}

/// A function of a library, called with (correlation, work, session).
#[derive(Clone, Debug)]
pub struct Marker {
    /// The library's file.
    pub library: PathBuf,
    /// Where the function is in the file. Not its name: libbpf would map the file to find it, and a process that has the
    /// file may change and truncate it.
    pub offset: u64,
}

/// What a trace watches besides functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing {
    /// Calls are traced beside a profile: launches have stacks of their own, not those of their calls.
    pub beside: bool,
    /// Only sum calls, in the kernel.
    pub sums_only: bool,
    /// Take stacks at the functions that request it.
    pub stacks: bool,
    /// If calls are only summed, still report those that contain kernel names.
    pub names: bool,
    /// Follow every process from its first watched call on.
    pub all: bool,
    /// Follow it only until it exits or execs, without its children.
    pub callers_only: bool,
    /// Follow only processes in this cgroup.
    pub cgroup: Option<Cgroup>,
    /// Share one set of sums between all CPUs: smaller, and cheaper to read.
    pub shared_sums: bool,
    /// If calls are only summed, do not watch the returns of most calls that repeat an earlier one.
    pub skip_returns: bool,
    /// System calls on device files.
    pub driver: bool,
    /// Context switches of followed threads.
    pub switches: bool,
    /// Kernel functions, with kprobes.
    pub kernel_functions: bool,
    /// Kernel functions, with fentry.
    pub hooks: bool,
    /// Tracepoints by name.
    pub points: bool,
}

/// A cgroup v2 group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The inode of its directory.
    pub id: u64,
    /// Its number of levels below the root.
    pub level: u32,
}
