//! The events of a recording.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC. Events of one source arrive in order; events of different sources do not:
//! an activity may precede its launch, a launch the frames of its stack.

mod cost;
mod counter;
mod dump;
mod energy;
mod gpm;
mod gpu;
mod ids;
mod loss;
mod memory;
mod nvtx;
mod pm;
mod process;
mod stack;
mod stall;
mod trace;

use serde::Serialize;

pub use cost::{CostProgram, OwnCost, ProgramCost, SessionCost};
pub use counter::{Counter, CounterId, CounterPoint, Hits, OFF_CPU, PointId, SHORT_WAITS, Unit, Wait};
pub use dump::{Dump, DumpReason};
pub use energy::Energy;
pub use gpm::Gpm;
pub use gpu::{
    Activity, Captured, Counted, Device, DeviceIdentity, Direction, Empty, Failed, GraphDestroyed, KernelName, Launch,
    LaunchKind, NodeCopied, NodeCreated, NodeStack, Pause, Rank, Returned, Sampling, Session, Sync, Work,
};
pub use ids::{ProcessId, SessionId, StackId, Uuid};
pub use loss::{Loss, LossCause, Totals};
pub use memory::{Shutdown, Tensor, TensorFreed};
pub use nvtx::{Range, RangeName, RangedLaunch};
pub use pm::PmSamples;
pub use process::{ADDRESS, Exit, Mapping, Origin, Process, Thread};
pub use stack::{Frame, FrameKind, NamedFrame, Sample, Stack, StackEnd, Symbol};
pub use stall::{
    Instruction, InstructionText, SourceLine, SourceText, StallLines, StallReason, StallSamples, StallTotals,
};
pub use trace::{Call, ErrorSum, Function, FunctionId, KernelSum, Layer, Memory, MemorySum, Sum, Switch};

/// Anything that a recording can contain.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The recording began.
    Start(Start),
    /// A process image was created.
    Process(Process),
    /// A thread gets a name.
    Thread(Thread),
    /// A process image ended.
    Exit(Exit),
    /// A file was mapped into a process.
    Mapping(Mapping),
    /// The frames of a stack, once for each distinct stack.
    Stack(Stack),
    /// A CPU sample of a running thread.
    Sample(Sample),
    /// An injected library connected.
    Session(Session),
    /// The place of a CUDA process in a distributed program.
    Rank(Rank),
    /// Declares a path of NVTX ranges.
    RangeName(RangeName),
    /// An NVTX range ended, or a mark was set.
    Range(Range),
    /// A launch within an NVTX range.
    RangedLaunch(RangedLaunch),
    /// A kernel's name.
    KernelName(KernelName),
    /// A GPU.
    Device(Device),
    /// A launch-class call began.
    Launch(Launch),
    /// A launch-class call returned. Reported with the thread's next one.
    Returned(Returned),
    /// A launch-class call returned an error: no activity will follow.
    Failed(Failed),
    /// A launch-class call became a node of a graph being captured: no activity will follow.
    Captured(Captured),
    /// A node of a graph was created.
    NodeCreated(NodeCreated),
    /// The stack of a node that was created outside launch-class calls.
    NodeStack(NodeStack),
    /// A node got the contents of another.
    NodeCopied(NodeCopied),
    /// A graph was destroyed.
    GraphDestroyed(GraphDestroyed),
    /// A launch-class call gave the GPU nothing to do: no activity will follow.
    Empty(Empty),
    /// Launches that were only counted.
    Counted(Counted),
    /// How much of a session was recorded.
    Sampling(Sampling),
    /// An activity of the GPU.
    Activity(Activity),
    /// The host waited for the GPU.
    Sync(Sync),
    /// Names a stall reason.
    StallReason(StallReason),
    /// Samples of an instruction on a GPU.
    StallSamples(StallSamples),
    /// The source of such an instruction.
    StallLines(StallLines),
    /// The text of such an instruction.
    InstructionText(InstructionText),
    /// Lines of a source file that has such instructions.
    SourceText(SourceText),
    /// What a session counted while it sampled.
    StallTotals(StallTotals),
    /// A reading of a GPU's energy counter.
    Energy(Energy),
    /// What a GPU's performance monitor measured.
    Gpm(Gpm),
    /// Samples of the counters of a GPU.
    PmSamples(PmSamples),
    /// Declares a callable.
    Function(Function),
    /// One call of a callable.
    Call(Call),
    /// An off-CPU interval of a thread.
    Switch(Switch),
    /// Calls summed up in the kernel.
    Sum(Sum),
    /// Failed calls counted in the kernel.
    ErrorSum(ErrorSum),
    /// Memory counted in the kernel.
    MemorySum(MemorySum),
    /// Launches of a kernel counted in the kernel.
    KernelSum(KernelSum),
    /// Declares a counted event.
    Counter(Counter),
    /// Declares a place where a counted event can occur.
    CounterPoint(CounterPoint),
    /// Hits of such a place.
    Hits(Hits),
    /// A thread that launches GPU work was off the CPU.
    Wait(Wait),
    /// Memory of PyTorch's caching allocator was given to a tensor.
    Tensor(Tensor),
    /// The memory of a tensor was given back to it.
    TensorFreed(TensorFreed),
    /// Python begins to shut down.
    Shutdown(Shutdown),
    /// A session's own totals; each replaces that session's previous ones.
    Totals(Totals),
    /// The cost of a session; each replaces that session's previous one.
    SessionCost(SessionCost),
    /// Another client used CUPTI; each replaces the one with the same number.
    Pause(Pause),
    /// CPU time of warpscope and of the command.
    OwnCost(OwnCost),
    /// Time in a BPF program; each replaces that program's previous one.
    ProgramCost(ProgramCost),
    /// Something was lost.
    Loss(Loss),
    /// A note for the user.
    Note(Note),
    /// The recording is a dump of the recent past.
    Dump(Dump),
    /// The names at an address.
    Symbol(Symbol),
    /// The recording ended in order.
    End(End),
}

/// The recording began.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The start time, CLOCK_MONOTONIC.
    pub time: u64,
    /// The start time, in nanoseconds since 1970.
    pub wall_clock: u64,
    /// warpscope's version.
    pub version: String,
    /// The host name.
    pub host: String,
    /// The command and its arguments; empty when attached to something running.
    pub command: Vec<String>,
    /// What is recorded.
    pub mode: Mode,
    /// Samples per second and CPU; 0 if CPUs are not sampled.
    pub frequency: u32,
}

/// What is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// CPU samples and GPU activity in one flame graph.
    #[default]
    Merged,
    /// GPU activity by the stacks that launched it.
    GpuOnly,
    /// CPU samples only.
    CpuOnly,
    /// Individual calls.
    Trace,
    /// Calls, summed up.
    TraceSums,
    /// Counted events only.
    EventsOnly,
}

impl Mode {
    /// Returns the mode with this number.
    pub fn from_number(number: u8) -> Self {
        let all = [Self::Merged, Self::GpuOnly, Self::CpuOnly, Self::Trace, Self::TraceSums, Self::EventsOnly];
        all.get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// A note for the user: what did not work, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The text.
    pub text: String,
}

/// The recording ended in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// When it ended.
    pub time: u64,
    /// The command's raw wait status, if there was a command.
    pub status: Option<i32>,
}
