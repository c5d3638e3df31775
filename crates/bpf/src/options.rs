//! What to record.

use std::path::PathBuf;

/// What to record.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Samples per second on every CPU; none without.
    pub sample_hz: Option<u32>,
    /// The marker function to watch.
    pub marker: Option<Marker>,
    /// Size of the ring buffer in bytes, a power of two.
    pub ring_bytes: u32,
    /// Size of the ring buffer for stacks that come as raw memory, a power of two; 16 MiB without.
    pub raw_ring_bytes: Option<u32>,
    /// What to trace.
    pub tracing: Option<Tracing>,
    /// Count hits of events, with room for so many distinct (place, process image, stack) in the kernel; none without.
    pub hits: Option<u32>,
    /// Running processes to follow; they are the images 1, 2 and so on.
    pub found: Vec<u32>,
}

/// A function of a library, called with (correlation, work, session).
#[derive(Clone, Debug)]
pub struct Marker {
    /// The library's file.
    pub library: PathBuf,
    /// The function.
    pub symbol: String,
}

/// What a trace watches besides functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing {
    /// Only sum calls up, in the kernel.
    pub sums_only: bool,
    /// Take stacks at the functions that say so.
    pub stacks: bool,
    /// Where calls are only summed up, tell of those that teach names all the same.
    pub names: bool,
    /// Follow every process, from its first watched call on.
    pub all: bool,
    /// Follow it only to its end or until it runs another program, and nothing that it forks.
    pub callers_only: bool,
    /// Follow only what is in this control group.
    pub cgroup: Option<Cgroup>,
    /// One set of sums for all CPUs, not one for each: smaller, and cheaper to read.
    pub shared_sums: bool,
    /// System calls on device files.
    pub driver: bool,
    /// Followed threads leaving CPUs.
    pub switches: bool,
    /// Functions of the kernel, by kprobes.
    pub kernel_functions: bool,
    /// Functions of the kernel, by fentry.
    pub hooks: bool,
    /// Tracepoints by name.
    pub points: bool,
}

/// A control group of the second hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The inode of its directory.
    pub id: u64,
    /// How many levels it lies below the root.
    pub level: u32,
}
