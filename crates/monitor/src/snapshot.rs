//! The state of the machine's GPU processes at one point in time. Every count starts when the process was first seen
//! and only grows; rates are the difference between two snapshots.

pub(crate) mod rates;
pub(crate) mod site;
pub(crate) mod utc;

use std::{sync::Arc, time::Duration};

pub use gpu_counters::nvml::Device;

/// Everything known at one point in time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The time on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The time since 1970.
    pub unix_ns: u64,
    /// Processes that use CUDA, by pid; ended ones are included in one snapshot only.
    pub processes: Vec<Process>,
    /// GPUs, from NVML; empty without it.
    pub devices: Vec<Device>,
    /// Which values are counted.
    pub kinds: Kinds,
    /// The state of warpscope itself.
    pub health: Health,
}

/// Which values are counted. A value that is not counted is not shown anywhere: a 0 would be misleading.
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
    /// Unique id, also across processes with the same pid.
    pub id: u32,
    /// The pid.
    pub pid: u32,
    /// Its short name.
    pub comm: String,
    /// Its user's name, or the number if there is no name.
    pub user: String,
    /// The container's id, shortened to 12 characters; empty outside containers.
    pub container: String,
    /// Its command line; only shown on the terminal, since arguments may contain secrets.
    pub command: String,
    /// How long it has been watched.
    pub watched: Duration,
    /// How long it used a CUDA library before it was watched: calls in that time are missing. `None` if it was watched
    /// from its first call.
    pub unwatched: Option<Duration>,
    /// It has ended since the last snapshot: these are its last values.
    pub ended: bool,
    /// Memory by space.
    pub memory: Vec<Memory>,
    /// Live allocations by the call stack that allocated them, most suspicious first; bounded.
    pub suspects: Vec<Suspect>,
    /// Launches by kernel, most frequent first; bounded, the rest is in `other_launches`.
    pub kernels: Vec<Kernel>,
    /// Launches of kernels not in `kernels`.
    pub other_launches: u64,
    /// Launches of kernels whose names are still being resolved. They move to `kernels` afterwards.
    pub unnamed_launches: u64,
    /// Launches by address of the kernels not in `kernels`, so that the rate of one that moves there is known.
    pub unlisted: Vec<(u64, u64)>,
    /// Launches of whole graphs.
    pub graph_launches: u64,
    /// Copies by direction, synchronous and asynchronous ones separately.
    pub copies: Vec<Copies>,
    /// Memsets.
    pub sets: Moved,
    /// Failed calls by function and result.
    pub errors: Vec<Errors>,
    /// Calls by function: their number and duration.
    pub calls: Vec<Calls>,
}

/// Where memory is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// On a GPU.
    #[default]
    Device,
    /// Migrates between host and GPUs.
    Managed,
    /// Pinned, on the host.
    Host,
}

impl Space {
    /// Returns the label value.
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
    /// The space.
    pub space: Space,
    /// Bytes allocated and not yet freed.
    pub live_bytes: u64,
    /// Allocations not yet freed.
    pub live: u64,
    /// The peak of live bytes.
    pub peak_bytes: u64,
    /// Successful allocations.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Successful frees.
    pub frees: u64,
    /// Failed allocations.
    pub failed: u64,
    /// Failed frees.
    pub failed_frees: u64,
    /// Successful frees of memory whose allocation was not seen.
    pub unknown_frees: u64,
    /// Allocations whose address was reused although no free of it was seen.
    pub missed_frees: u64,
    /// Allocations released with their context or device.
    pub released: u64,
    /// Successful allocations that are not tracked: actual live memory is higher than shown.
    pub untracked: u64,
}

/// Live allocations with one call stack.
#[derive(Clone, Debug, Default)]
pub struct Suspect {
    /// Their bytes.
    pub bytes: u64,
    /// How many.
    pub count: u64,
    /// Bytes allocated since the last snapshot, minus those freed.
    pub growth: i64,
    /// The age of the oldest.
    pub oldest: Duration,
    /// The function that allocated them, such as `cudaMalloc`.
    pub function: Arc<str>,
    /// Frames, outermost first; empty if the stack is unknown.
    pub stack: Arc<[Frame]>,
    /// The frames are still being resolved: they are empty now, and will not be.
    pub resolving: bool,
    /// An explanation, such as "PyTorch's caching allocator: held for reuse, not leaked"; empty if there is none.
    pub remark: &'static str,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name, which may contain anything.
    pub name: String,
    /// It is a Python function of the interpreter or of an installed package.
    pub of_library: bool,
}

impl From<&str> for Frame {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), of_library: false }
    }
}

/// Launches of one kernel.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// Its demangled name; with the address if the name is unknown.
    pub name: Arc<str>,
    /// Launches.
    pub launches: u64,
    /// Launches by the address or handle that was launched: several may have the same name.
    pub by_address: Vec<(u64, u64)>,
    /// Blocks of the last launch.
    pub grid: [u32; 3],
    /// Threads per block of the last launch.
    pub block: [u32; 3],
}

/// Copies in one direction.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    /// The direction, such as `HtoD`.
    pub direction: &'static str,
    /// The call returns before the copy is done, so its time is not that of the copy.
    pub asynchronous: bool,
    /// Calls, bytes, and time in the calls.
    pub moved: Moved,
    /// Copies by size: how many had at most so many bytes, not cumulative, with ascending bounds; the last bound is
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

impl Moved {
    /// Adds more. Sizes come from untrusted programs and can have any value.
    pub(crate) fn add(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.ns = self.ns.saturating_add(more.ns);
    }
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
    /// Calls by duration in nanoseconds: how many took at most so long, not cumulative, with ascending bounds; the last
    /// bound is `u64::MAX`.
    pub durations: Vec<(u64, u64)>,
    /// The function does the program's GPU work: it submits work, allocates or frees memory, or waits; and the program
    /// calls it directly, not only through another such function.
    pub working: bool,
}

/// The state of warpscope itself.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Watched libraries.
    pub libraries: u64,
    /// Watched functions.
    pub functions: u64,
    /// Processes that loaded a CUDA library before it was watched.
    pub late_processes: u64,
    /// The total time in between, over all of them.
    pub late: Duration,
    /// Processes that ended before their CUDA library was watched.
    pub missed_processes: u64,
    /// Calls not counted because a BPF map was full, by map.
    pub lost: Vec<(&'static str, u64)>,
    /// Usage of the BPF maps: name, entries, capacity.
    pub maps: Vec<(&'static str, u64, u64)>,
    /// Time series summed into "other" because of the limit.
    pub series_dropped: u64,
    /// How long launches, copies and errors were not counted, to limit the cost; `None` if it is not limited.
    pub paused: Option<Duration>,
    /// Time in the BPF programs: name, runs, seconds.
    pub programs: Vec<(&'static str, u64, f64)>,
    /// CPU time used by warpscope, in seconds.
    pub cpu_seconds: f64,
    /// Its resident memory in bytes.
    pub resident_bytes: u64,
    /// Messages for the user, newest last; bounded.
    pub notes: Vec<String>,
}

/// Returns a duration in nanoseconds.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
