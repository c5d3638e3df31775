//! GPU activities, and the calls that caused them.

use cuda::occupancy::Limits;
use serde::Serialize;

use super::{ProcessId, SessionId, StackId, Uuid};

/// An injected library connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id in this recording.
    pub id: SessionId,
    /// The image it is loaded in.
    pub process: ProcessId,
    /// CUPTI's version; 0 without CUPTI.
    pub cupti: u32,
    /// The driver's version, such as 13000.
    pub driver: u32,
}

/// The place of a CUDA process in a distributed program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The CUDA process.
    pub session: SessionId,
    /// Its rank, if it has one.
    pub rank: Option<u32>,
    /// Its rank on this machine, if known.
    pub local: Option<u32>,
    /// The environment variable that contains the rank; empty without a rank.
    pub variable: String,
    /// It uses the Multi-Process Service (MPS).
    pub mps: bool,
}

/// A kernel's mangled name from CUPTI. Id 0 stands for a kernel whose name was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelName {
    /// The session that owns the name table.
    pub session: SessionId,
    /// Index in that table.
    pub id: u32,
    /// The name.
    pub name: String,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The session that reported it.
    pub session: SessionId,
    /// Its index in that session: with `CUDA_VISIBLE_DEVICES`, processes number the same GPUs differently.
    pub index: u32,
    /// Its name, such as "NVIDIA H200".
    pub name: String,
    /// Its identity; unknown in recordings of earlier versions.
    pub identity: DeviceIdentity,
}

/// The identity of a device, its location and its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Its UUID; that of the instance, if the GPU is partitioned (MIG).
    pub uuid: Uuid,
    /// The UUID of the GPU that it is an instance of; equal to `uuid` if the GPU is not partitioned.
    pub gpu: Uuid,
    /// The GPU's PCI address, as a number that sorts like addresses; `u64::MAX` if unknown.
    pub pci: u64,
    /// The GPU's index in the machine, if known.
    pub machine_index: Option<u32>,
    /// Its resources; unknown in recordings of earlier versions.
    pub limits: Limits,
}

impl Default for DeviceIdentity {
    /// Nothing is known.
    fn default() -> Self {
        Self { uuid: Uuid(0), gpu: Uuid(0), pci: u64::MAX, machine_index: None, limits: Limits::default() }
    }
}

/// What a launch-class call submits to the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub enum LaunchKind {
    /// A kernel.
    #[default]
    Kernel = 1,
    /// A copy.
    Copy = 2,
    /// A memset.
    Memset = 3,
    /// A graph of many operations.
    Graph = 4,
}

impl LaunchKind {
    /// Returns the kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Kernel, Self::Copy, Self::Memset, Self::Graph].into_iter().find(|k| *k as u8 == number)
    }

    /// Returns its name.
    pub fn text(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Memset => "memset",
            Self::Graph => "graph",
        }
    }
}

/// A launch-class call began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The CUDA process.
    pub session: SessionId,
    /// Joins it to its activities within the session.
    pub correlation: u32,
    /// What it launches.
    pub kind: LaunchKind,
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// When it began.
    pub time: u64,
    /// The call stack.
    pub stack: StackId,
    /// If stacks are sampled, the logarithm to base 2 of the number of launches that this stack stands for.
    pub rate: u8,
}

/// A launch-class call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The CUDA process.
    pub session: SessionId,
    /// The launch.
    pub correlation: u32,
    /// How long it took, in nanoseconds.
    pub took: u64,
}

/// Launches that were only counted, since the last event for the same kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The CUDA process.
    pub session: SessionId,
    /// What they launched.
    pub kind: LaunchKind,
    /// The session's name id of the kernel; 0 for other kinds.
    pub name: u32,
    /// Launches.
    pub count: u64,
}

/// How much of a session was recorded; each replaces the session's previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// The CUDA process.
    pub session: SessionId,
    /// Time in which GPU work was recorded.
    pub recorded_ns: u64,
    /// Time since the session began.
    pub whole_ns: u64,
}

/// A launch-class call returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The CUDA process.
    pub session: SessionId,
    /// The call's correlation id.
    pub correlation: u32,
    /// `CUresult` or `cudaError_t`.
    pub code: u32,
}

/// A launch-class call on a capturing stream became a node of a graph. Its work runs when the graph is launched, and
/// belongs to that launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The CUDA process.
    pub session: SessionId,
    /// The call's correlation id.
    pub correlation: u32,
}

/// A node of a graph was created: a kernel, copy or memset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCreated {
    /// The CUDA process.
    pub session: SessionId,
    /// The node's id; the upper half is the graph's.
    pub node: u64,
    /// The correlation id of the launch-class call that created it, or the mark of a [`NodeStack`].
    pub mark: u32,
    /// It was created outside launch-class calls: `mark` is its own.
    pub own: bool,
}

/// The stack of a node that was created outside launch-class calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStack {
    /// The CUDA process.
    pub session: SessionId,
    /// The number by which [`NodeCreated`] refers to it.
    pub mark: u32,
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// When.
    pub time: u64,
    /// The call stack.
    pub stack: StackId,
}

/// A node got the contents of another: it was cloned when its graph was instantiated or added to another graph, or an
/// executable graph was updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCopied {
    /// The CUDA process.
    pub session: SessionId,
    /// The node.
    pub node: u64,
    /// The node that it was copied from.
    pub original: u64,
    /// When.
    pub time: u64,
}

/// A graph, or an executable one, was destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphDestroyed {
    /// The CUDA process.
    pub session: SessionId,
    /// The graph's id.
    pub graph: u32,
}

/// A launch-class call succeeded without giving the GPU anything to do, such as a copy or memset of 0 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// The CUDA process.
    pub session: SessionId,
    /// The call's correlation id.
    pub correlation: u32,
}

/// An activity of the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// The CUDA process.
    pub session: SessionId,
    /// Joins it to its launch within the session.
    pub correlation: u32,
    /// The GPU's index.
    pub device: u32,
    /// The context's id.
    pub context: u32,
    /// The stream's id.
    pub stream: u32,
    /// Start; 0 if the time was lost.
    pub start: u64,
    /// End; 0 if it was lost or the work had not finished.
    pub end: u64,
    /// The graph it belongs to; 0 outside graphs.
    pub graph: u32,
    /// The node in that graph.
    pub graph_node: u64,
    /// The work that ran.
    pub work: Work,
}

impl Activity {
    /// Returns its duration; 0 if unknown.
    pub fn duration(&self) -> u64 {
        if self.start == 0 { 0 } else { self.end.saturating_sub(self.start) }
    }
}

/// The work of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// A kernel.
    Kernel {
        /// The session's name id.
        name: u32,
        /// Blocks.
        grid: [u32; 3],
        /// Threads per block.
        block: [u32; 3],
        /// Registers per thread.
        registers: u16,
        /// Bytes of shared memory.
        shared_memory: u32,
    },
    /// A copy.
    Copy {
        /// The direction.
        direction: Direction,
        /// Number of bytes.
        bytes: u64,
        /// `CUpti_ActivityMemoryKind` of the source.
        source: u8,
        /// `CUpti_ActivityMemoryKind` of the destination.
        destination: u8,
        /// The other device of a peer-to-peer copy.
        peer: Option<u32>,
    },
    /// A memset.
    Memset {
        /// Number of bytes.
        bytes: u64,
        /// The value written.
        value: u32,
        /// `CUpti_ActivityMemoryKind`.
        memory: u8,
    },
}

impl Default for Work {
    /// A memset of 0 bytes.
    fn default() -> Self {
        Self::Memset { bytes: 0, value: 0, memory: 0 }
    }
}

/// The direction of a copy; numbers as in `CUpti_ActivityMemcpyKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Direction {
    Unknown = 0,
    HtoD = 1,
    DtoH = 2,
    HtoA = 3,
    AtoH = 4,
    AtoA = 5,
    AtoD = 6,
    DtoA = 7,
    DtoD = 8,
    HtoH = 9,
    PtoP = 10,
}

impl Direction {
    /// All directions, by number.
    pub const ALL: [Self; 11] = [
        Self::Unknown,
        Self::HtoD,
        Self::DtoH,
        Self::HtoA,
        Self::AtoH,
        Self::AtoA,
        Self::AtoD,
        Self::DtoA,
        Self::DtoD,
        Self::HtoH,
        Self::PtoP,
    ];

    /// Returns the direction with this number.
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Unknown)
    }

    /// Returns its name.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::HtoD => "HtoD",
            Self::DtoH => "DtoH",
            Self::HtoA => "HtoA",
            Self::AtoH => "AtoH",
            Self::AtoA => "AtoA",
            Self::AtoD => "AtoD",
            Self::DtoA => "DtoA",
            Self::DtoD => "DtoD",
            Self::HtoH => "HtoH",
            Self::PtoP => "PtoP",
        }
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.text())
    }
}

/// Another client of CUPTI, such as torch.profiler, used it: there are no records of the GPU's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// The CUDA process.
    pub session: SessionId,
    /// Its number in the session.
    pub number: u32,
    /// Start.
    pub from: u64,
    /// End; `u64::MAX` if it is not known yet.
    pub to: u64,
    /// The other client, as far as known.
    pub client: String,
}

/// The host waited for the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// The CUDA process.
    pub session: SessionId,
    /// The call.
    pub correlation: u32,
    /// `CUpti_ActivitySynchronizationType`.
    pub kind: u32,
    /// The context.
    pub context: u32,
    /// The stream; `u32::MAX` if none.
    pub stream: u32,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
}
