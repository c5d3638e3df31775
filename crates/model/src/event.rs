//! What happens in a recording, event by event.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC. Events of one source come in order; events of different sources do not:
//! an activity may come before its launch, a launch before the frames of its stack.

mod counter;
mod trace;

use std::sync::Arc;

use serde::Serialize;

pub use counter::{Counter, CounterId, CounterPoint, Hits, PointId, Unit};
pub use trace::{Call, ErrorSum, Function, FunctionId, KernelSum, Layer, MemorySum, Sum, Switch};

/// One program image in one process: born at fork or exec, gone at exec or exit. Unlike a pid it is never reused
/// within a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ProcessId(pub u32);

/// A distinct call stack of one process image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct StackId(pub u64);

/// One injected library's connection: one CUDA process. The first is 0; numbers are dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SessionId(pub u32);

/// Anything that a recording can contain.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The recording begins.
    Start(Start),
    /// A process image appears.
    Process(Process),
    /// A thread gets a name.
    Thread(Thread),
    /// A process image ends.
    Exit(Exit),
    /// A file is mapped into a process.
    Mapping(Mapping),
    /// The frames of a stack, once for each distinct stack.
    Stack(Stack),
    /// A thread was seen running on a CPU.
    Sample(Sample),
    /// An injected library connected.
    Session(Session),
    /// A kernel's name.
    KernelName(KernelName),
    /// A GPU.
    Device(Device),
    /// A launch-class call began.
    Launch(Launch),
    /// A launch-class call returned an error: no activity will follow.
    Failed(Failed),
    /// A launch-class call became a node of a graph being captured: no activity will follow.
    Captured(Captured),
    /// A launch-class call gave the GPU nothing to do: no activity will follow.
    Empty(Empty),
    /// The GPU did something.
    Activity(Activity),
    /// The host waited for the GPU.
    Sync(Sync),
    /// Something that can be called appears.
    Function(Function),
    /// One call of it.
    Call(Call),
    /// A thread was off the CPU.
    Switch(Switch),
    /// Calls summed up in the kernel.
    Sum(Sum),
    /// Failed calls counted in the kernel.
    ErrorSum(ErrorSum),
    /// Memory counted in the kernel.
    MemorySum(MemorySum),
    /// Launches of a kernel counted in the kernel.
    KernelSum(KernelSum),
    /// An event that is counted by stack appears.
    Counter(Counter),
    /// A place where it can happen appears.
    CounterPoint(CounterPoint),
    /// Hits of such a place.
    Hits(Hits),
    /// A session's own totals; each replaces that session's last.
    Totals(Totals),
    /// Something was lost.
    Loss(Loss),
    /// Something the user should read.
    Note(Note),
    /// The names at an address.
    Symbol(Symbol),
    /// The recording ends in order.
    End(End),
}

/// The recording begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Now, CLOCK_MONOTONIC.
    pub time: u64,
    /// Now, nanoseconds since 1970.
    pub wall_clock: u64,
    /// warpscope's version.
    pub version: String,
    /// The machine.
    pub host: String,
    /// The command and its arguments; empty when attached to something running.
    pub command: Vec<String>,
    /// What is recorded.
    pub mode: Mode,
    /// Samples per second and CPU; 0 without a sampler.
    pub frequency: u32,
}

/// What is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// CPU samples and GPU activity in one flame graph.
    #[default]
    Merged,
    /// GPU activity under the stacks that launched it.
    GpuOnly,
    /// CPU samples alone.
    CpuOnly,
    /// Calls, one by one.
    Trace,
    /// Calls, summed up.
    TraceSums,
    /// Counted events alone.
    EventsOnly,
}

/// A process image appears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id here.
    pub id: ProcessId,
    /// The image it was forked or exec'ed from; 0 if that is not in the recording.
    pub parent: ProcessId,
    /// How it came to be.
    pub origin: Origin,
    /// The pid.
    pub pid: u32,
    /// When.
    pub time: u64,
    /// The kernel's short name of it.
    pub comm: String,
}

/// How a process image came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[repr(u8)]
pub enum Origin {
    /// It was there already.
    #[default]
    Found = 0,
    /// Forked: it has its parent's mappings of that moment.
    Fork = 1,
    /// A new program in an old process: it has no mapping but its own.
    Exec = 2,
}

/// A thread gets a name (also at its birth, and again when it changes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process image.
    pub process: ProcessId,
    /// The thread's id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
}

/// A process image ends, by exit or exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The image.
    pub process: ProcessId,
    /// When.
    pub time: u64,
}

/// The bits that an address of a process has. Above them is a number where an address has belonged to several files, one after
/// another: 0 for the first.
pub const ADDRESS: u64 = (1 << 48) - 1;

/// A file is mapped into a process, executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The image.
    pub process: ProcessId,
    /// When.
    pub time: u64,
    /// First address; see [`ADDRESS`].
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset in the file of the first address.
    pub offset: u64,
    /// The file as the process names it, or `[vdso]` and the like.
    pub path: String,
    /// The file's build id, if it is known.
    pub build_id: Vec<u8>,
}

/// The frames of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Its id.
    pub id: StackId,
    /// The image whose addresses these are.
    pub process: ProcessId,
    /// When it was first seen: mappings of that moment apply.
    pub time: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// How the walk ended.
    pub end: StackEnd,
}

/// One frame of a stack as it was gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Native code of the process. The innermost is the instruction pointer; all others are return addresses less one,
    /// so that they lie in the calling instruction.
    User(u64),
    /// Code of the operating system's kernel.
    Kernel(u64),
    /// A line of a Python function, by its number in this recording; its [`Symbol`] has process 0 and comes before it.
    Python(u32),
}

impl Frame {
    /// The process whose table of symbols has this frame, in a stack of `process`: those of the kernel and of Python are
    /// the same for all.
    pub fn named_in(self, process: ProcessId) -> ProcessId {
        match self {
            Self::User(_) => process,
            Self::Kernel(_) | Self::Python(_) => ProcessId(0),
        }
    }
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum StackEnd {
    /// At the outermost frame.
    #[default]
    Whole = 0,
    /// At the most frames that are kept.
    Truncated = 1,
    /// For a reason not told.
    Broken = 2,
    /// At an address in no known mapping.
    NoMapping = 3,
    /// At code without unwind information that keeps no frame pointer.
    NoRule = 4,
    /// At unwind information of a kind that is not understood.
    Unsupported = 5,
    /// At code that is unwound by the frame pointer, or by another register, which was lost on the way.
    FramePointerLost = 6,
    /// At memory that could not be read.
    Unreadable = 7,
    /// Where the stack did not shrink.
    Stuck = 8,
}

impl StackEnd {
    /// All of them, by number.
    pub const ALL: [Self; 9] = [
        Self::Whole,
        Self::Truncated,
        Self::Broken,
        Self::NoMapping,
        Self::NoRule,
        Self::Unsupported,
        Self::FramePointerLost,
        Self::Unreadable,
        Self::Stuck,
    ];

    /// The end with this number.
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Broken)
    }
}

/// A thread was seen running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// When.
    pub time: u64,
    /// Its stack.
    pub stack: StackId,
    /// The time it stands for: the sampling period.
    pub weight: u64,
}

/// An injected library connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id here.
    pub id: SessionId,
    /// The image it lives in.
    pub process: ProcessId,
    /// CUPTI's version, 0 where there is none.
    pub cupti: u32,
    /// The driver's version, such as 13000.
    pub driver: u32,
}

/// A kernel's name as CUPTI gave it (mangled). Id 0 stands for a kernel whose name was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelName {
    /// Whose table of names.
    pub session: SessionId,
    /// Index in that table.
    pub id: u32,
    /// The name.
    pub name: String,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Who told.
    pub session: SessionId,
    /// Its index there.
    pub index: u32,
    /// Such as "NVIDIA H200".
    pub name: String,
}

/// What a launch-class call puts on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub enum LaunchKind {
    /// A kernel.
    Kernel = 1,
    /// A copy.
    Copy = 2,
    /// A memset.
    Memset = 3,
    /// A graph of many operations.
    Graph = 4,
}

impl LaunchKind {
    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Kernel, Self::Copy, Self::Memset, Self::Graph].into_iter().find(|k| *k as u8 == number)
    }
}

/// A launch-class call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The CUDA process.
    pub session: SessionId,
    /// Ties it to its activities within the session.
    pub correlation: u32,
    /// What it launches.
    pub kind: LaunchKind,
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// When.
    pub time: u64,
    /// The call stack.
    pub stack: StackId,
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

/// A launch-class call on a stream that captures became a node of a graph. Its work is done when the graph is launched,
/// and belongs to that launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The CUDA process.
    pub session: SessionId,
    /// The call's correlation id.
    pub correlation: u32,
}

/// A launch-class call that succeeded without giving the GPU anything to do, such as a copy or memset of 0 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// The CUDA process.
    pub session: SessionId,
    /// The call's correlation id.
    pub correlation: u32,
}

/// The GPU did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The CUDA process.
    pub session: SessionId,
    /// Ties it to its launch within the session.
    pub correlation: u32,
    /// The GPU's index.
    pub device: u32,
    /// The context's id.
    pub context: u32,
    /// The stream's id.
    pub stream: u32,
    /// Start; 0 if the time was lost.
    pub start: u64,
    /// End; 0 if it was lost, or the work had not finished.
    pub end: u64,
    /// The graph it belongs to, 0 outside graphs.
    pub graph: u32,
    /// The node in that graph.
    pub graph_node: u64,
    /// What it was.
    pub work: Work,
}

impl Activity {
    /// How long it ran; 0 if that is not known.
    pub fn duration(&self) -> u64 {
        if self.start == 0 { 0 } else { self.end.saturating_sub(self.start) }
    }
}

/// What the GPU did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Ran a kernel.
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
    /// Copied memory.
    Copy {
        /// From where to where.
        direction: Direction,
        /// How much.
        bytes: u64,
        /// `CUpti_ActivityMemoryKind` of the source.
        source: u8,
        /// `CUpti_ActivityMemoryKind` of the destination.
        destination: u8,
        /// The other device of a peer copy.
        peer: Option<u32>,
    },
    /// Set memory.
    Memset {
        /// How much.
        bytes: u64,
        /// To what.
        value: u32,
        /// `CUpti_ActivityMemoryKind`.
        memory: u8,
    },
}

/// From where to where a copy goes; numbers as in `CUpti_ActivityMemcpyKind`.
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
    /// All of them, by number.
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

    /// The direction with this number.
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Unknown)
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// The host waited for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The CUDA process.
    pub session: SessionId,
    /// The call.
    pub correlation: u32,
    /// `CUpti_ActivitySynchronizationType`.
    pub kind: u32,
    /// The context.
    pub context: u32,
    /// The stream, `u32::MAX` if none.
    pub stream: u32,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
}

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
}

/// Something the user should read: a part that could not work, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The sentence.
    pub text: String,
}

/// The names at an address. Several where functions were inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The image; [`ProcessId`] 0 for the kernel's own addresses and for lines of Python.
    pub process: ProcessId,
    /// The frame as it stands in stacks.
    pub frame: Frame,
    /// From when on; 0 where the address has had one meaning only.
    pub since: u64,
    /// Outermost first.
    pub names: Vec<NamedFrame>,
}

/// One frame as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamedFrame {
    /// Its family: decides the colour, and the `_[k]` of kernel frames.
    pub kind: FrameKind,
    /// The function, demangled; the module in brackets where the function is not known.
    pub name: Arc<str>,
    /// The file name of the module; empty if not known.
    pub module: Arc<str>,
}

/// The family of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameKind {
    /// Native code.
    Native = 0,
    /// The operating system's kernel.
    Kernel = 1,
    /// warpscope's injected library and CUPTI: hidden at the innermost end of a launch's stack.
    Probe = 2,
    /// A Python function; the module is the source file.
    Python = 3,
}

/// The recording ends in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// When.
    pub time: u64,
    /// The command's wait status as the system gave it, if there was one.
    pub status: Option<i32>,
}
