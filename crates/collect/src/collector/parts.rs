//! The parts of a collector.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bpf::{Cause, Mappings, Recorder};
use model::event::{LossCause, ProcessId, SessionId, StackId};
use symbols::Kept;

use crate::{
    attaching::Attaching,
    calls::tracer::Tracer,
    command::signals::Signals,
    handover::Handovers,
    process::{images::Images, reused::Reused, scans::Scans, thread_ids::ThreadIds},
    sessions::{ReportedLaunch, Sessions},
    sink::Sink,
    source::{Around, Parts, Source},
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
    /// Present in a trace: the first source.
    pub trace: Option<Box<Tracer>>,
    /// The other sources.
    pub(super) sources: Vec<Box<dyn Source>>,
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
    pub(super) scans: Scans,
    /// How often a stack was not kept because its process has too many.
    pub(super) left_out: u64,
    /// The losses that were reported.
    pub(super) reported_losses: BTreeMap<LossCause, u64>,
    /// Nanoseconds that one CPU sample represents; 0 if none are taken.
    pub(super) period: u64,
}

impl<S: Sink> Collector<S> {
    /// Calls every source.
    pub(super) fn each_source(&mut self, mut call: impl FnMut(&mut dyn Source, &mut dyn Around)) {
        let (mut trace, mut sources) = (self.trace.take(), std::mem::take(&mut self.sources));
        if let Some(trace) = &mut trace {
            call(&mut **trace, self);
        }
        for source in &mut sources {
            call(&mut **source, self);
        }
        (self.trace, self.sources) = (trace, sources);
    }
}

impl<S: Sink> Around for Collector<S> {
    fn parts(&mut self) -> Parts<'_> {
        let Self { recorder, sink, images, thread_ids, .. } = self;
        Parts { recorder, sink, images, thread_ids }
    }

    fn stack(&mut self, image: u32, taken: (u64, u64), cause: Option<(Cause, u32)>, time: u64) -> StackId {
        match cause {
            Some(cause) => self.handed_stack(image, taken, cause, time),
            None => self.whole_stack(image, taken.0, taken.1, time),
        }
    }

    fn launch(&mut self, (session, correlation): (u64, u32), image: u32) -> Option<(SessionId, u32)> {
        Some((self.sessions.as_mut()?.id(session, ProcessId(image))?, correlation))
    }
}
