//! Totals of the sessions, and losses.

use serde::Serialize;

use super::SessionId;

/// A session's own totals since it began: what CUPTI delivered to it, and what it dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The session.
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
    /// Records dropped because the queue was full.
    pub dropped_queue_full: u64,
    /// Inconsistent records.
    pub invalid: u64,
    /// Kernels without a name because the name table was full.
    pub nameless: u64,
    /// Buffers refused to CUPTI.
    pub buffers_refused: u64,
    /// Launches neither recorded nor counted, because the queue was full.
    pub dropped_launches: u64,
    /// The session ended in order: all its records were sent.
    pub ended: bool,
}

/// Something was lost outside the sessions: in the kernel's buffers or in warpscope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The cause.
    pub cause: LossCause,
    /// How many were lost since the last event with this cause.
    pub count: u64,
}

/// The cause of a loss. [`crate::ledger`] describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum LossCause {
    /// Launches dropped because the ring buffer was full.
    RingLaunches = 0,
    /// Stacks dropped because the ring buffer was full.
    RingStacks = 1,
    /// Samples dropped because the ring buffer was full.
    RingSamples = 2,
    /// Process and thread events dropped because the ring buffer was full.
    RingProcesses = 3,
    /// Mapping records that the kernel dropped.
    Mappings = 4,
    /// Malformed packets from an injected library.
    MalformedPackets = 5,
    /// Stacks whose walk failed completely.
    StackWalks = 6,
    /// Python stacks whose frames do not match the native ones.
    PythonStacksUneven = 7,
    /// Calls, system calls, switches and tracepoints dropped because the ring buffer was full.
    RingCalls = 8,
    /// Calls nested too deeply to be tracked.
    DeepCalls = 9,
    /// Calls that did not fit into the kernel's sums.
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
    /// GPU operations summed up without their stack and kernel, because there were too many distinct ones.
    GpuSums = 16,
    /// Records from the operating system's kernel that could not be parsed.
    UnparsedRecords = 17,
    /// Events that could not be written to the recording.
    EventsNotWritten = 18,
    /// Records of a recording that this version does not support.
    RecordsSkipped = 19,
    /// Files whose unwind table could not be built because of an error in warpscope.
    UnwindTables = 20,
    /// Processes that have no process id in warpscope's pid namespace.
    ForeignProcesses = 21,
    /// BPF maps that could not be read completely.
    MapsUnread = 22,
    /// Hits of counted events that fit neither into the kernel's sums nor into the ring buffer.
    Hits = 32,
    /// Nodes of graphs, or their stacks, beyond the limits.
    GraphNodes = 33,
    /// Launches and samples of threads to which work was handed, by a call that is not known.
    Handovers = 34,
    /// Waits of threads that launch GPU work, dropped because the ring buffer was full.
    RingWaits = 40,
    /// Allocations and frees of tensors, dropped because the ring buffer was full.
    RingTensors = 41,
    /// Off-CPU intervals of threads whose switch the kernel did not report.
    MissedSwitches = 42,
    /// Samples of the counters of GPUs that warpscope could not read in time.
    CounterSamples = 43,
    /// How often the hardware buffer of the counters of a GPU was full: samples are missing.
    CounterOverflows = 44,
    /// Mappings of libraries of PyTorch or XLA beyond the limits: the work that they hand over appears under their own threads.
    EnginesRefused = 50,
    /// Launches that named a stack or a session of another process: they have no stack, or are not recorded.
    ForeignStacks = 53,
    /// Threads beyond the limits: the code that started them is not shown.
    ThreadsRefused = 54,
    /// Files that were not read because the process that reads them failed: names are missing.
    FilesUnread = 60,
    /// Launches whose threads ended while they reported them.
    UnwrittenLaunches = 61,
    /// Launches and samples whose stacks are beyond the limits of what is kept for a process, and for all.
    StacksRefused = 62,
    /// Mappings of files beyond these limits: stacks end there.
    MappingsRefused = 63,
    /// Processes and names of threads beyond these limits.
    ProcessesRefused = 64,
    /// Python code and lines beyond these limits: they have no name.
    PythonRefused = 65,
    /// Records of threads in another pid namespace whose ids there could not be translated.
    UnknownThreads = 70,
}

impl LossCause {
    /// All causes, by number.
    pub const ALL: [Self; 41] = [
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
        Self::GraphNodes,
        Self::Handovers,
        Self::RingWaits,
        Self::RingTensors,
        Self::MissedSwitches,
        Self::CounterSamples,
        Self::CounterOverflows,
        Self::EnginesRefused,
        Self::ForeignStacks,
        Self::ThreadsRefused,
        Self::FilesUnread,
        Self::UnwrittenLaunches,
        Self::StacksRefused,
        Self::MappingsRefused,
        Self::ProcessesRefused,
        Self::PythonRefused,
        Self::UnknownThreads,
    ];

    /// Returns the cause with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| *cause as u8 == number)
    }
}
