//! The state of the machine's GPU processes at one moment. Every count is since the process was first seen, and only
//! grows; rates are the difference between two snapshots.

use std::{sync::Arc, time::Duration};

pub use nvml::Device;

/// Everything known at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// When, since 1970.
    pub unix_ns: u64,
    /// Processes that use CUDA, by pid; those that have ended are gone after one snapshot.
    pub processes: Vec<Process>,
    /// GPUs, as NVML tells; none without it.
    pub devices: Vec<Device>,
    /// What is counted at all.
    pub kinds: Kinds,
    /// How warpscope itself fares.
    pub health: Health,
}

/// Which numbers are counted. A number that is not counted is shown nowhere: a 0 would be a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// Memory: live, peak, allocations, frees, suspects.
    pub memory: bool,
    /// Launches, by kernel.
    pub launches: bool,
    /// Launches of whole graphs.
    pub graphs: bool,
    /// Copies.
    pub copies: bool,
    /// Memsets.
    pub sets: bool,
    /// Failed calls.
    pub errors: bool,
}

impl Kinds {
    /// Everything is counted.
    pub const ALL: Self = Self { memory: true, launches: true, graphs: true, copies: true, sets: true, errors: true };
}

impl Default for Kinds {
    fn default() -> Self {
        Self::ALL
    }
}

/// A process that uses CUDA.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Told apart from another process that had the same pid.
    pub id: u32,
    /// The pid.
    pub pid: u32,
    /// Its short name.
    pub comm: String,
    /// Its user's name, or number where it has none.
    pub user: String,
    /// The container's id, shortened to 12 characters; empty outside of containers.
    pub container: String,
    /// Its command; only for whoever sits at the terminal, since arguments may be secrets.
    pub command: String,
    /// For how long it has been watched.
    pub watched: Duration,
    /// For how long it had a CUDA library loaded that was not watched yet: calls in that time are missing. `None` if it was
    /// watched from its first call.
    pub unwatched: Option<Duration>,
    /// It has ended since the last snapshot: these are its last numbers.
    pub ended: bool,
    /// Memory by where it lies.
    pub memory: Vec<Memory>,
    /// Allocations that are still live, by the call stack that made them, most suspect first; bounded.
    pub suspects: Vec<Suspect>,
    /// Launches by kernel, most frequent first; bounded, the rest is in `other_launches`.
    pub kernels: Vec<Kernel>,
    /// Launches of kernels that are not in `kernels`.
    pub other_launches: u64,
    /// Launches of kernels whose names are being looked up. They are in `kernels` afterwards.
    pub unnamed_launches: u64,
    /// Launches of whole graphs.
    pub graph_launches: u64,
    /// Copies by direction, synchronous and asynchronous ones apart.
    pub copies: Vec<Copies>,
    /// Memsets.
    pub sets: Moved,
    /// Failed calls by function and result.
    pub errors: Vec<Errors>,
    /// Calls by function: how many and how long.
    pub calls: Vec<Calls>,
}

/// Where memory lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// On a GPU.
    #[default]
    Device,
    /// Moves between host and GPUs.
    Managed,
    /// Pinned, on the host.
    Host,
}

impl Space {
    /// As a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Managed => "managed",
            Self::Host => "host",
        }
    }
}

/// Memory in one space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Where.
    pub space: Space,
    /// Bytes allocated and not yet freed.
    pub live_bytes: u64,
    /// Allocations not yet freed.
    pub live: u64,
    /// The most bytes at a time.
    pub peak_bytes: u64,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Frees that succeeded.
    pub frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Frees that failed.
    pub failed_frees: u64,
    /// Of the frees that succeeded: those of memory whose allocation was not seen.
    pub unknown_frees: u64,
    /// Allocations whose address was given out again, though no free of it was seen.
    pub missed_frees: u64,
    /// Allocations that were released with their context or device.
    pub released: u64,
    /// Allocations that succeeded and are not tracked: live memory is more than is shown.
    pub untracked: u64,
}

/// Live allocations with one call stack.
#[derive(Clone, Debug, Default)]
pub struct Suspect {
    /// Their bytes.
    pub bytes: u64,
    /// How many.
    pub count: u64,
    /// Bytes that have come since the last snapshot, less those that have gone.
    pub growth: i64,
    /// The age of the oldest.
    pub oldest: Duration,
    /// The function that allocated them, such as `cudaMalloc`.
    pub function: Arc<str>,
    /// Frames, outermost first, as a person reads them; empty if the stack is not known.
    pub stack: Arc<[String]>,
    /// What is to be known of it, such as "PyTorch's caching allocator: held for reuse, not leaked"; empty if nothing.
    pub remark: &'static str,
}

/// Launches of one kernel.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// Its name, demangled; the address in hexadecimal where nobody told.
    pub name: Arc<str>,
    /// Launches.
    pub launches: u64,
    /// Blocks of the last one.
    pub grid: [u32; 3],
    /// Threads per block of the last one.
    pub block: [u32; 3],
}

/// Copies in one direction.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    /// Such as `HtoD`.
    pub direction: &'static str,
    /// The call returns before the copy is done: its time is not the copy's.
    pub asynchronous: bool,
    /// Calls, bytes, and time in the calls.
    pub moved: Moved,
    /// Copies by size: how many had at most so many bytes, not cumulative, with bounds that grow; the last bound is
    /// `u64::MAX`.
    pub sizes: Vec<(u64, u64)>,
    /// Copies by duration in nanoseconds, likewise; empty for asynchronous ones.
    pub durations: Vec<(u64, u64)>,
}

/// Bytes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Calls.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time in the calls.
    pub ns: u64,
}

/// Failed calls.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    /// The function.
    pub function: Arc<str>,
    /// The result by name, such as `cudaErrorMemoryAllocation`.
    pub code: Arc<str>,
    /// Calls.
    pub count: u64,
}

/// Calls of one function.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The function.
    pub function: Arc<str>,
    /// Calls.
    pub count: u64,
    /// Their time.
    pub ns: u64,
    /// Calls by duration in nanoseconds: how many took at most so long, not cumulative, with bounds that grow; the last
    /// bound is `u64::MAX`.
    pub durations: Vec<(u64, u64)>,
    /// It is what a program uses a GPU for: gives it work, takes or frees memory, waits; and the program calls it itself,
    /// not only through another such function.
    pub working: bool,
}

/// How warpscope itself fares.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Libraries that are watched.
    pub libraries: u64,
    /// Functions that are watched.
    pub functions: u64,
    /// Processes that loaded a CUDA library before it was watched.
    pub late_processes: u64,
    /// The time between, of all of them.
    pub late: Duration,
    /// Processes that ended before their CUDA library was watched.
    pub missed_processes: u64,
    /// Calls that found no room in the kernel's maps, by map.
    pub lost: Vec<(&'static str, u64)>,
    /// How full the kernel's maps are: name, entries, room.
    pub maps: Vec<(&'static str, u64, u64)>,
    /// Time series that were summed into "other" because there would have been too many.
    pub series_dropped: u64,
    /// CPU time that warpscope has used, in seconds.
    pub cpu_seconds: f64,
    /// Bytes of memory that it has resident.
    pub resident_bytes: u64,
    /// What the user should read, newest last; bounded.
    pub notes: Vec<String>,
}
