//! What happens in a recording, event by event.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC. Events of one source come in order; events of different sources do not:
//! an activity may come before its launch, a launch before the frames of its stack.

mod counter;
mod gpu;
mod loss;
mod process;
mod stack;
mod trace;

use serde::Serialize;

pub use counter::{Counter, CounterId, CounterPoint, Hits, PointId, Unit};
pub use gpu::{
    Activity, Captured, Device, Direction, Empty, Failed, KernelName, Launch, LaunchKind, Session, Sync, Work,
};
pub use loss::{Loss, LossCause, Totals};
pub use process::{ADDRESS, Exit, Mapping, Origin, Process, Thread};
pub use stack::{Frame, FrameKind, NamedFrame, Sample, Stack, StackEnd, Symbol};
pub use trace::{Call, ErrorSum, Function, FunctionId, KernelSum, Layer, MemorySum, Sum, Switch};

/// One program image in one process: born at fork or exec, gone at exec or exit. Unlike a pid it is never reused
/// within a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ProcessId(pub u32);

/// A distinct call stack of one process image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct StackId(pub u64);

/// One injected library's connection: one CUDA process. The first is 0; numbers are dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
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

impl Mode {
    /// The mode with this number.
    pub fn from_number(number: u8) -> Self {
        let all = [Self::Merged, Self::GpuOnly, Self::CpuOnly, Self::Trace, Self::TraceSums, Self::EventsOnly];
        all.get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// Something the user should read: a part that could not work, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The sentence.
    pub text: String,
}

/// The recording ends in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// When.
    pub time: u64,
    /// The command's wait status as the system gave it, if there was one.
    pub status: Option<i32>,
}
