//! Ends a recording: reads what is still pending, and detaches everything.

use std::{process::Child, time::Instant};

use bpf::Mappings;
use model::event::{CostProgram, Event, Loss, LossCause, Note, OwnCost, ProgramCost};
use symbols::Kept;

use super::{parts::Collector, records, run::IDLE};
use crate::{
    calls::{handles::Handles, sums, tracer::Tracer},
    command::signals::Signals,
    handover::Handovers,
    process::{cpu_time, procfs},
    sessions::{RecognisedLaunches, Sessions},
    sink::Sink,
    stacks::{python::Pythons, unwinding::Tables},
};
use std::time::Duration;

/// How long a recording waits for the last GPU records of processes that keep running.
const LAST_RECORDS: Duration = Duration::from_secs(2);
/// How long it waits for processes that warpscope is attached to: until nothing of a session is left in them.
const LAST_LEAVES: Duration = Duration::from_secs(5);
/// How long what is pending is read after nothing more is recorded. The rest is counted as lost.
const LAST_READS: Duration = Duration::from_secs(2);

/// What remains of a collector after everything is detached.
pub struct Collected<S> {
    /// Where the events went.
    pub sink: S,
    /// Signals sent to warpscope.
    pub signals: Signals,
    /// What is needed to resolve addresses.
    pub kept: Kept,
    /// What was traced.
    pub trace: Option<Tracer>,
    /// The cost of collecting.
    pub cost: Cost,
}

/// The cost of collecting.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The unwind tables.
    pub tables: Tables,
    /// Launches whose stack was recognised by the program itself.
    pub recognised: RecognisedLaunches,
}

impl<S: Sink> Collector<S> {
    /// Reads what is still pending and detaches everything, so that running processes are no longer affected. Another signal ends the
    /// reading at once.
    pub fn finish(mut self) -> Collected<S> {
        self.signals.begin_end();
        let sink = &mut self.sink;
        let sampling_ns = std::mem::take(&mut self.gpu_counters).finish(&mut |event| sink.push(&event));
        self.end_sessions();
        let traced = self.trace.as_ref().is_some_and(|trace| !trace.beside_profile);
        if traced {
            self.end_trace();
        }
        self.drain();
        if traced {
            let sink = &mut self.sink;
            sums::read(&self.recorder, &mut |event| sink.push(&event));
            self.name_handles(true);
            for symbol in self.handles.as_mut().map(Handles::finish).unwrap_or_default() {
                self.sink.push(&Event::Symbol(symbol));
            }
            let missed = self.recorder.missed_by_hooks();
            if missed > 0 {
                self.note(format!(
                    "{missed} calls of kernel functions were missed (fentry): they were made inside another hook"
                ));
            }
        }
        self.report_cost(sampling_ns);
        if self.period > 0 {
            self.kept.keep_bpf_programs();
        }
        let recognised = self.sessions.as_ref().map(Sessions::recognised).unwrap_or_default();
        let cost = Cost { tables: self.unwinding.tables(), recognised };
        Collected { sink: self.sink, signals: self.signals, kept: self.kept, trace: self.trace, cost }
    }

    /// Reports what collecting has cost so far, in this process and in the one that sampled counters.
    fn report_cost(&mut self, sampling_ns: u64) {
        for bpf::ProgramCost { program, runs, ns } in self.recorder.costs() {
            let program = match program {
                bpf::CostProgram::Launch => CostProgram::Launch,
                bpf::CostProgram::Sample => CostProgram::Sample,
                bpf::CostProgram::Enter => CostProgram::Enter,
                bpf::CostProgram::Leave => CostProgram::Leave,
                bpf::CostProgram::Hit => CostProgram::Hit,
            };
            self.sink.push(&Event::ProgramCost(ProgramCost { program, runs, ns }));
        }
        let collector_ns = cpu_time::own().saturating_add(sampling_ns);
        let program_ns = cpu_time::of_ended_children().saturating_sub(sampling_ns);
        self.sink.push(&Event::OwnCost(OwnCost { collector_ns, program_ns }));
    }

    /// Notes that the recording stopped after this many seconds while the command was running.
    pub fn note_stop(&mut self, seconds: f64, child: &Child) {
        let pid = child.id();
        let comm = procfs::comm(pid).map_or_else(String::new, |comm| format!(" ({comm})"));
        self.note(format!("warpscope stopped recording after {seconds} s while process {pid}{comm} was running"));
    }

    pub(super) fn note(&mut self, text: String) {
        self.sink.push(&Event::Note(Note { text }));
    }

    /// Ends the sessions of processes that may keep running: their injected libraries send what they have and stop.
    fn end_sessions(&mut self) {
        self.end_attaching();
        let Some(sessions) = &self.sessions else { return };
        sessions.request_finish();
        let begun = Instant::now();
        loop {
            let Some(sessions) = &self.sessions else { return };
            let attached = !sessions.attached_to().is_empty();
            let patience = if attached { LAST_LEAVES } else { LAST_RECORDS };
            let ended = !attached && !sessions.any_open();
            if ended || begun.elapsed() > patience || self.signals.stop_requested_again() {
                break;
            }
            if !self.gather() {
                self.sleep(IDLE, None);
            }
        }
        for pid in self.sessions.as_ref().map(Sessions::attached_to).unwrap_or_default() {
            self.note(format!("process {pid} has not confirmed the end of the recording: it is stopped or very busy"));
        }
    }

    /// Ends a trace: removes all probes, and reports calls that have not returned.
    fn end_trace(&mut self) {
        if let Some(callbacks) = self.trace.as_mut().and_then(|trace| trace.callbacks.as_mut()) {
            callbacks.end_all();
        }
        if let Err(error) = self.recorder.end_trace() {
            self.note(format!("calls in progress are not in the trace: {error}"));
        }
    }

    /// Stops everything that writes to the rings: processes that keep running would fill them without end.
    fn stop_recording(&mut self) {
        if self.events.is_some()
            && let Err(error) = self.recorder.end_waits()
        {
            self.note(format!("threads that still waited at the end are missing: {error}"));
        }
        self.recorder.stop();
    }

    /// Reads what is still pending after the end, for a limited time: processes may keep sending. The rest is counted.
    fn drain(&mut self) {
        self.stop_recording();
        let begun = Instant::now();
        while begun.elapsed() < LAST_READS && !self.signals.stop_requested_again() && self.gather() {}
        self.recorder.discard();
        self.take_all_reported();
        self.take_hits(true);
        let (sink, reused) = (&mut self.sink, &self.reused);
        let signals = &self.signals;
        self.unwinding.finish_all(&self.kept.files, &|| signals.stop_requested_again(), &mut |walked| {
            sink.push(&Event::Stack(records::walked(walked, reused)));
        });
        if let Some(pythons) = &mut self.pythons {
            pythons.finish(sink);
        }
        if let Some(handovers) = &mut self.handovers {
            let pythons = self.pythons.as_ref();
            handovers.finish(sink, &|number| pythons?.named(number).cloned());
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.finish(&self.thread_ids, &mut |event| sink.push(&event));
            self.kept.cubins.extend(sessions.take_cubins());
        }
        if let Some(events) = &self.events {
            events.finish(&mut |event| sink.push(&event));
        }
        self.count_losses();
    }

    /// Reads the event sums added since the last call. A key that has not been announced yet is deferred, unless this
    /// is the last call.
    pub(super) fn take_hits(&mut self, last: bool) {
        if self.events.is_none() {
            return;
        }
        for (key, sum) in self.recorder.hit_sums() {
            let known = self.events.as_ref().and_then(|events| events.stack(&key));
            let stack = match known {
                Some(stack) => stack,
                None if last => self.whole_stack(key.image, key.stack, key.python, bpf::now()),
                None => continue,
            };
            let (Some(events), sink) = (&mut self.events, &mut self.sink) else { return };
            events.sum(key, stack, sum, &mut |event| sink.push(&event));
        }
    }

    /// Reports what was lost since the last call.
    pub(super) fn count_losses(&mut self) {
        let losses = self.recorder.losses();
        let mappings = self.mappings.as_ref().map_or(0, Mappings::lost);
        for (cause, count) in [
            (LossCause::RingLaunches, losses.launches),
            (LossCause::RingStacks, losses.stacks + self.unwinding.raw_dropped()),
            (LossCause::RingSamples, losses.samples),
            (LossCause::RingProcesses, losses.processes),
            (LossCause::StackWalks, losses.walks),
            (LossCause::RingCalls, losses.calls),
            (LossCause::DeepCalls, losses.deep_calls),
            (LossCause::CallSums, losses.sums),
            (LossCause::MapsUnread, losses.unread),
            (LossCause::Hits, losses.hits + self.events.as_ref().map_or(0, |_| self.recorder.hits_missed())),
            (LossCause::RingWaits, losses.waits),
            (LossCause::RingTensors, losses.tensors),
            (LossCause::MissedSwitches, losses.switches),
            (LossCause::Mappings, mappings),
            (LossCause::UnparsedRecords, losses.unparsed + self.mappings.as_ref().map_or(0, Mappings::unparsed)),
            (LossCause::UnwindTables, self.unwinding.failures()),
            (LossCause::Handovers, self.handovers.as_ref().map_or(0, Handovers::unknown)),
            (LossCause::EnginesRefused, self.handovers.as_ref().map_or(0, Handovers::refused)),
            (LossCause::ThreadsRefused, self.handovers.as_ref().map_or(0, Handovers::threads_refused)),
            (LossCause::StacksRefused, self.left_out),
            (LossCause::PythonRefused, self.pythons.as_ref().map_or(0, Pythons::refused)),
            (LossCause::PythonStacksUneven, self.pythons.as_ref().map_or(0, Pythons::uneven)),
        ] {
            let reported = self.reported_losses.entry(cause).or_default();
            let new = count.saturating_sub(*reported);
            if new > 0 {
                *reported = count;
                self.sink.push(&Event::Loss(Loss { cause, count: new }));
            }
        }
    }
}
