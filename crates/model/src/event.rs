//! The events of a recording.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC. Events of one source arrive in order; events of different sources do not:
//! an activity may precede its launch, a launch the frames of its stack.

mod communication;
mod cost;
mod counter;
mod derived;
mod dump;
mod energy;
mod gpm;
mod gpu;
mod ids;
mod limits;
mod loss;
mod memory;
mod nvtx;
mod pm;
mod process;
mod references;
mod stack;
mod stall;
mod trace;

use serde::Serialize;

pub use communication::{Communicator, CommunicatorCall, NO_PEER, Operation};
pub use cost::{CostProgram, OwnCost, ProgramCost, SessionCost};
pub use counter::{Counter, CounterId, CounterPoint, Hits, OFF_CPU, PointId, SHORT_WAITS, Unit, Wait};
#[cfg(test)]
pub(crate) use derived::fields;
pub use dump::{Dump, DumpReason};
pub use energy::Energy;
pub use gpm::Gpm;
pub use gpu::{
    Activity, Captured, Counted, Device, DeviceIdentity, Direction, Empty, Failed, GraphDestroyed, KernelName, Launch,
    LaunchKind, NodeCopied, NodeCreated, NodeStack, Pause, Rank, Returned, Sampling, Session, Sync, Work,
};
pub use ids::{ProcessId, RECORDING_BITS, SessionId, StackId, Uuid};
pub use limits::{KernelCounter, LimitTotals};
pub use loss::{Loss, LossCause, Totals};
pub use memory::{HeldMemory, MemoryHolder, Shutdown, Tensor, TensorFreed, Use};
pub use nvtx::{Range, RangeName, RangedLaunch};
pub use pm::PmSamples;
pub use process::{ADDRESS, Exit, Mapping, Origin, Process, Thread};
pub use references::Owner;
pub(crate) use references::{Key, Number};
pub use stack::{Frame, FrameKind, NamedFrame, Sample, Stack, StackEnd, Symbol};
pub use stall::{
    Instruction, InstructionText, SourceLine, SourceText, StallLines, StallReason, StallSamples, StallTotals,
};
pub use trace::{Call, ErrorSum, Function, FunctionId, KernelSum, Layer, Memory, MemorySum, Sum, Switch};

/// Declares every kind of event, once. The macro `$then` gets the declarations: those of the recording, of merged
/// recordings, of windows, of filters and of tests follow from them.
///
/// ```text
///   /// What it says.
///   tag = Name { fields } [role] [role]
/// ```
///
/// The tag and the fields, in file order, are those of its record. The first group has no lengths, and an encoding of its own
/// (`recording/frequent.rs`). In the second, a field is one of
///
/// ```text
///   name                     as its type is written
///   name from other          its distance from another field
///   name or value            recordings of earlier versions end before it: then it has this value
///   name unless 0            the last field, left out where it is 0; with `from other` as a distance
///   name as module           as the functions of a module write it
///   [flags ...; has ...]     a byte: flags of the event, and which optional fields are there, each with its bit
///   name?                    such an optional field
/// ```
///
/// Numbers of processes, sessions, stacks and the like are known by the types of fields. The roles say the rest:
///
/// ```text
///   [at time]                it happened then
///   [during start end]       it lasted from one to the other; `end()` if that is a method
///   [since time]             it is true from then on: a time range contains it, and so does every later one
///   [time other]             another field that is a time
///   [of launch]              it reports the outcome of a launch, by `session` and `correlation`
///   [thread tid]             what a thread did on a CPU: filters of threads, stacks and times select it
///   [key fields]             later events refer to it, or it describes something that lasts: a window keeps the last one
///                            with the same values of these fields; without fields, each
/// ```
macro_rules! events {
    ($then:ident) => {
        $then! {
            {
                /// A launch-class call began.
                1 = Launch { session, correlation, kind, process, tid, cpu, time, stack, rate } [at time] [of launch]
                /// An activity of the GPU.
                2 = Activity { session, correlation, device, context, stream, start, end, graph, graph_node, work } [during start end]
                /// A CPU sample of a running thread.
                3 = Sample { process, tid, cpu, time, stack, weight } [at time] [thread tid]
                /// The host waited for the GPU.
                4 = Sync { session, correlation, kind, context, stream, start, end } [during start end]
            }
            {
                /// The recording began.
                16 = Start { time, wall_clock, version, host, command, mode, frequency } [since time]
                /// A process image was created.
                17 = Process { id, parent, pid, time, comm, origin } [since time] [key id]
                /// A process image ended.
                19 = Exit { process, time } [since time] [key process]
                /// A thread gets a name.
                18 = Thread { process, tid, comm } [key process tid]
                /// A file was mapped into a process.
                20 = Mapping { process, time, start, end from start, offset, path, build_id } [since time] [key]
                /// The frames of a stack, once for each distinct stack.
                21 = Stack { id, process, time, end, frames as frames } [since time]
                /// An injected library connected.
                22 = Session { id, process, cupti, driver } [key id]
                /// The place of a CUDA process in a distributed program.
                70 = Rank { session, rank, local, variable, mps } [key session]
                /// A GPU.
                24 = Device { session, index, name, identity } [key session index]
                /// A kernel's name.
                23 = KernelName { session, id, name } [key session id]
                /// Declares a path of NVTX ranges.
                71 = RangeName { session, id, parent, category, name } [key session id]
                /// Another client used CUPTI; each replaces the one with the same number. It may be reported before a window,
                /// and end in it.
                91 = Pause { session, number, from, to, client } [during from to] [key session number]
                /// Declares a counted event.
                48 = Counter { id, name, source, weight, unit } [key id]
                /// Declares a place where a counted event can occur.
                49 = CounterPoint { id, counter, function, file } [key id]
                /// A note for the user.
                28 = Note { text } [key]
                /// The names at an address.
                29 = Symbol { process, frame, names, since unless 0 } [since since] [key process frame since]
                /// An NVTX range ended, or a mark was set.
                72 = Range { session, path, tid, start, end from start, mark } [during start end]
                /// A launch within an NVTX range.
                73 = RangedLaunch { session, correlation, path } [of launch]
                /// A process became a member of a communicator.
                74 = Communicator { session, id, parent, size, rank } [key session id rank]
                /// A thread called an operation of a communicator.
                75 = CommunicatorCall { session, communicator, operation, number, bytes, peer, tid, time } [at time]
                /// A launch-class call returned. Reported with the thread's next one.
                46 = Returned { session, correlation, took } [of launch]
                /// A launch-class call returned an error: no activity will follow.
                25 = Failed { session, correlation, code } [of launch]
                /// A launch-class call became a node of a graph being captured: no activity will follow.
                31 = Captured { session, correlation } [of launch]
                /// A launch-class call gave the GPU nothing to do: no activity will follow.
                40 = Empty { session, correlation } [of launch]
                /// A node of a graph was created.
                51 = NodeCreated { session, node, mark, own }
                /// The stack of a node that was created outside launch-class calls.
                52 = NodeStack { session, mark, process, tid, time, stack } [since time]
                /// A node got the contents of another.
                53 = NodeCopied { session, node, original, time } [since time]
                /// A graph was destroyed.
                54 = GraphDestroyed { session, graph }
                /// Launches that were only counted.
                44 = Counted { session, kind, name, count }
                /// How much of a session was recorded.
                45 = Sampling { session, recorded_ns, whole_ns }
                /// Names a stall reason.
                100 = StallReason { session, index, name }
                /// Samples of an instruction on a GPU.
                101 = StallSamples { at, reason, count, correlation unless 0 }
                /// The source of such an instruction.
                102 = StallLines { at, lines }
                /// The text of such an instruction.
                105 = InstructionText { at, text }
                /// Lines of a source file that has such instructions.
                104 = SourceText { file, first, lines }
                /// What a session counted while it sampled.
                103 = StallTotals {
                    session, samples, other_kernels, dropped, unsent, buffer_full, contexts, contexts_refused, buffer_bytes,
                    period, cubins_refused, memory_bytes or 0, serialised or false,
                }
                /// What a hardware counter counted for a launch.
                120 = KernelCounter { session, correlation, metric, value } [of launch]
                /// How launches were measured.
                121 = LimitTotals { session, measured, disturbed, lost, captured, communication, took_ns } [key session]
                /// A reading of a GPU's energy counter.
                110 = Energy { gpu, time, millijoules } [at time]
                /// What a GPU's performance monitor measured.
                111 = Gpm { gpu, start, end from start, values } [during start end]
                /// Samples of the counters of a GPU.
                112 = PmSamples { gpu, start, metrics, times as times, values } [during start end()]
                /// Declares a callable.
                32 = Function { id, layer, library, name, shown, parameters or Vec::new(), void or false }
                /// One call of a callable.
                33 = Call {
                    function, process, tid, cpu, depth,
                    [flags nested 1, launches 16, enclosed 32; has out 2, launch 4, stack 8],
                    start, end from start, result, out?, launch?, stack?, words, payload, around unless 0 from start,
                } [during start end] [time around] [thread tid]
                /// An off-CPU interval of a thread.
                34 = Switch {
                    process, tid, cpu, depth, start, end from start, [flags preempted 1; has stack 2], state, stack?,
                    around unless 0 from start,
                } [during start end] [time around]
                /// Calls summed up in the kernel.
                35 = Sum {
                    function, process, class, nested, count, errors, ns, max_ns, bytes, buckets, self_ns or ns, outer_ns or ns,
                    min_ns or shortest(Vec::as_slice(&buckets), max_ns),
                }
                /// Failed calls counted in the kernel.
                36 = ErrorSum { function, code, count, enclosed or false }
                /// Memory counted in the kernel.
                38 = MemorySum { process, space, memory }
                /// Launches of a kernel counted in the kernel.
                39 = KernelSum { process, kernel, count }
                /// Hits of such a place.
                50 = Hits { point, process, stack, count, weight, outside }
                /// A thread that launches GPU work was off the CPU.
                60 = Wait { process, tid, start, end from start, stack, reason } [during start end] [thread tid]
                /// Memory of PyTorch's caching allocator was given to a tensor.
                80 = Tensor { process, tid, time, device, address, bytes, stack } [since time]
                /// The memory of a tensor was given back to it.
                81 = TensorFreed { process, tid, time, address } [since time]
                /// Python begins to shut down.
                82 = Shutdown { process, time } [since time]
                /// What a process held on a device at the end of a window, and at its peak.
                83 = HeldMemory { process, device, time, peak_time, most_tensor_bytes, most_held_bytes } [since time] [time peak_time]
                /// The part of it that a stack allocated.
                84 = MemoryHolder { process, device, what, stack, bytes, count, peak_bytes, peak_count }
                /// A session's own totals; each replaces that session's previous ones.
                26 = Totals {
                    session, ended, launches, kernels, kernel_ns, copies, memsets, syncs, dropped_by_cupti, dropped_queue_full,
                    invalid, nameless, buffers_refused, dropped_launches or 0,
                }
                /// The cost of a session; each replaces that session's previous one.
                43 = SessionCost { session, process_ns, callbacks_ns, stacks_ns, sender_ns }
                /// CPU time of warpscope and of the command.
                41 = OwnCost { collector_ns, program_ns }
                /// Time in a BPF program; each replaces that program's previous one.
                42 = ProgramCost { program, runs, ns }
                /// Something was lost.
                27 = Loss { cause, count }
                /// The recording is a dump of the recent past.
                90 = Dump { time, from, reason, text, window_ns, discarded, full } [during from time]
                /// The recording ended in order.
                30 = End { time, status } [since time]
            }
        }
    };
}
pub(crate) use events;

macro_rules! kinds {
    ($({ $($(#[$doc:meta])* $tag:literal = $name:ident { $($fields:tt)* } $([$($role:tt)*])*)* })*) => {
        /// Anything that a recording can contain.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event {
            $($($(#[$doc])* $name($name),)*)*
        }

        /// A kind of event, in the order of their declarations.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Kind {
            $($($name,)*)*
        }

        impl Event {
            /// Returns its kind.
            pub(crate) fn kind(&self) -> Kind {
                match self {
                    $($(Self::$name(_) => Kind::$name,)*)*
                }
            }
        }
    };
}

events!(kinds);

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
