//! What was counted and what was lost on the way.

use serde::Serialize;

use super::SessionId;

/// A session's own totals since it began: what CUPTI delivered to it, and what it had to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Whose.
    pub session: SessionId,
    /// Markers called.
    pub launches: u64,
    /// Kernel records that CUPTI delivered.
    pub kernels: u64,
    /// Their time.
    pub kernel_ns: u64,
    /// Copy records.
    pub copies: u64,
    /// Memset records.
    pub memsets: u64,
    /// Synchronisation records.
    pub syncs: u64,
    /// Records that CUPTI dropped.
    pub dropped_by_cupti: u64,
    /// Records that found the queue full.
    pub dropped_queue_full: u64,
    /// Records that contradict themselves.
    pub invalid: u64,
    /// Kernels without a name because the table was full.
    pub nameless: u64,
    /// Buffers refused to CUPTI.
    pub buffers_refused: u64,
    /// The session said goodbye: all it had was sent.
    pub ended: bool,
}

/// Something was lost outside the sessions: in the kernel's buffers or in warpscope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub cause: LossCause,
    /// How many since the last event of this cause.
    pub count: u64,
}

/// Why something was lost. [`crate::ledger`] says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum LossCause {
    /// Launches that found the ring buffer full.
    RingLaunches = 0,
    /// Stacks that found the ring buffer full.
    RingStacks = 1,
    /// Samples that found the ring buffer full.
    RingSamples = 2,
    /// Process and thread events that found the ring buffer full.
    RingProcesses = 3,
    /// Mapping records that the kernel dropped.
    Mappings = 4,
    /// Packets from an injected library that made no sense.
    MalformedPackets = 5,
    /// Stacks whose walk failed outright.
    StackWalks = 6,
    /// Python stacks whose frames do not answer to the native ones.
    PythonStacksUneven = 7,
    /// Calls, system calls, switches and tracepoints that found the ring buffer full.
    RingCalls = 8,
    /// Calls nested too deeply to be followed.
    DeepCalls = 9,
    /// Calls that found no room in the kernel's sums.
    CallSums = 10,
    /// Connections and sessions of injected libraries beyond the limits.
    SessionsRefused = 11,
    /// Kernel names beyond the limits.
    NamesRefused = 12,
    /// GPUs, or names of GPUs, beyond the limits.
    DevicesRefused = 13,
    /// Notices from injected libraries beyond the limits.
    NotesRefused = 14,
    /// GPU records on streams beyond the limits.
    StreamsRefused = 15,
    /// GPU operations that are summed up without their stack and kernel: there were too many distinct ones.
    GpuSums = 16,
    /// Records of the kernel that could not be parsed.
    UnparsedRecords = 17,
    /// Events that could not be written to the recording.
    EventsNotWritten = 18,
    /// Records of a recording that this version does not know.
    RecordsSkipped = 19,
    /// Files whose unwind table could not be made because of an error in warpscope.
    UnwindTables = 20,
    /// Processes that have no process id in warpscope's pid namespace.
    ForeignProcesses = 21,
    /// Maps of the kernel that could not be read completely.
    MapsUnread = 22,
    /// Hits of counted events that found room neither in the kernel's sums nor in the ring buffer.
    Hits = 32,
}

impl LossCause {
    /// All of them, by number.
    pub const ALL: [Self; 24] = [
        Self::RingLaunches,
        Self::RingStacks,
        Self::RingSamples,
        Self::RingProcesses,
        Self::Mappings,
        Self::MalformedPackets,
        Self::StackWalks,
        Self::PythonStacksUneven,
        Self::RingCalls,
        Self::DeepCalls,
        Self::CallSums,
        Self::SessionsRefused,
        Self::NamesRefused,
        Self::DevicesRefused,
        Self::NotesRefused,
        Self::StreamsRefused,
        Self::GpuSums,
        Self::UnparsedRecords,
        Self::EventsNotWritten,
        Self::RecordsSkipped,
        Self::UnwindTables,
        Self::ForeignProcesses,
        Self::MapsUnread,
        Self::Hits,
    ];

    /// The cause with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| *cause as u8 == number)
    }
}
