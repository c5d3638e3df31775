//! The parts of a collector.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::{Duration, Instant},
};

use bpf::{Mappings, Recorder};
use gpu_counters::Readings;
use model::event::{LossCause, ProcessId};
use symbols::Kept;

use crate::{
    attaching::Attaching,
    calls::{handles::Handles, tracer::Tracer},
    command::signals::Signals,
    events::Events,
    handover::Handovers,
    memory::Memory,
    process::{images::Images, reused::Reused, thread_ids::ThreadIds},
    sessions::{ReportedLaunch, Sessions},
    stacks::{python::Pythons, unwinding::Unwinding},
};

/// All inputs of a recording. Created by [`super::Prepared`].
pub struct Collector<S> {
    /// The BPF programs.
    pub recorder: Recorder,
    /// Mapping records of the kernel; absent if it provides none.
    pub mappings: Option<Mappings>,
    /// Signals sent to warpscope.
    pub signals: Signals,
    /// Where events go.
    pub sink: S,
    /// What is kept after processes end, to resolve their addresses.
    pub kept: Kept,
    /// Unwind tables, and the stacks that wait for them.
    pub unwinding: Unwinding,
    /// Absent if Python frames were not requested.
    pub pythons: Option<Pythons>,
    /// Present in a trace.
    pub trace: Option<Tracer>,
    /// Present once a traced process has launched kernels by handles that it got before.
    pub(super) handles: Option<Handles>,
    /// Present if events are counted.
    pub(super) events: Option<Events>,
    /// Present if GPU memory is recorded.
    pub(super) memory: Option<Memory>,
    /// Counters of the GPUs, as far as they are recorded.
    pub(super) gpu_counters: Readings,
    /// Present if work handed to other threads appears under its cause.
    pub(super) handovers: Option<Handovers>,
    /// The injected libraries, where there are any.
    pub(super) sessions: Option<Sessions>,
    /// Launches reported by the threads themselves that have not been taken yet, oldest first.
    pub(super) reported: VecDeque<ReportedLaunch>,
    /// Those that wait for the call that handed their work over, until the next round.
    pub(super) awaiting: Vec<ReportedLaunch>,
    /// Present if warpscope attaches to running processes.
    pub(super) attaching: Option<Attaching>,
    /// Called for each process that it has attached to, with the longest stop of a thread.
    pub on_attached: fn(u32, Duration),
    pub(super) images: Images,
    pub(super) thread_ids: ThreadIds,
    pub(super) reused: Reused,
    pub(super) rescan: Rescan,
    /// How often a stack was not kept because its process has too many.
    pub(super) left_out: u64,
    /// The losses that were reported.
    pub(super) reported_losses: BTreeMap<LossCause, u64>,
    /// Nanoseconds that one CPU sample represents; 0 if none are taken.
    pub(super) period: u64,
}

/// When the mappings of followed processes are read again.
#[derive(Debug, Default)]
pub(super) struct Rescan {
    /// The number of lost mapping records at the last scan.
    pub lost: u64,
    /// No scan before then.
    pub next: Option<Instant>,
    /// When the mappings of each process were read last.
    pub scanned: HashMap<ProcessId, u64>,
}
