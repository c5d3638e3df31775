//! Ends a recording: reads what is still pending, and detaches everything.

use std::{process::Child, time::Instant};

use bpf::Mappings;
use model::event::{CostProgram, Event, Loss, LossCause, Note, OwnCost, ProgramCost};
use symbols::Kept;

use super::{parts::Collector, records, run::IDLE};
use crate::{
    calls::tracer::Tracer,
    command::signals::Signals,
    handover::Handovers,
    process::{cpu_time, procfs},
    sessions::{RecognisedLaunches, Sessions},
    sink::Sink,
    source::Source,
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
    pub trace: Option<Box<Tracer>>,
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
        self.each_source(|source, around| source.end(around));
        self.end_sessions();
        self.drain();
        self.report_cost();
        if self.period > 0 {
            self.kept.keep_bpf_programs();
        }
        let recognised = self.sessions.as_ref().map(Sessions::recognised).unwrap_or_default();
        let cost = Cost { tables: self.unwinding.tables(), recognised };
        Collected { sink: self.sink, signals: self.signals, kept: self.kept, trace: self.trace, cost }
    }

    /// Reports what collecting has cost so far, in this process and in those that sources have started.
    fn report_cost(&mut self) {
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
        let sources_ns = self.sources.iter().map(|source| source.child_ns()).sum();
        let collector_ns = cpu_time::own().saturating_add(sources_ns);
        let program_ns = cpu_time::of_ended_children().saturating_sub(sources_ns);
        self.sink.push(&Event::OwnCost(OwnCost { collector_ns, program_ns }));
    }

    /// Notes that the recording stopped after this many seconds while the command was running.
    pub fn note_stop(&mut self, seconds: f64, child: &Child) {
        let pid = child.id();
        let comm = procfs::comm(pid).map_or_else(String::new, |comm| format!(" ({comm})"));
        self.note(format!("warpscope stopped recording after {seconds} s while process {pid}{comm} was running"));
    }

    pub(crate) fn note(&mut self, text: String) {
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

    /// Reads what is still pending after the end, for a limited time: processes may keep sending. The rest is counted.
    fn drain(&mut self) {
        // Processes that keep running would fill the rings without end.
        self.each_source(|source, around| source.stop(around));
        self.recorder.stop();
        let begun = Instant::now();
        while begun.elapsed() < LAST_READS && !self.signals.stop_requested_again() && self.gather() {}
        self.recorder.discard();
        self.take_all_reported();
        self.each_source(|source, around| source.finish(around));
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
        self.count_losses();
    }

    /// Reports what was lost since the last call.
    pub(super) fn count_losses(&mut self) {
        let losses = self.recorder.losses();
        let mut all = vec![
            (LossCause::RingLaunches, losses.launches),
            (LossCause::RingStacks, losses.stacks + self.unwinding.raw_dropped()),
            (LossCause::RingSamples, losses.samples),
            (LossCause::RingProcesses, losses.processes),
            (LossCause::StackWalks, losses.walks),
            (LossCause::MapsUnread, losses.unread),
            (LossCause::Mappings, self.lost_mappings()),
            (LossCause::UnparsedRecords, losses.unparsed + self.mappings.as_ref().map_or(0, Mappings::unparsed)),
            (LossCause::UnwindTables, self.unwinding.failures()),
            (LossCause::Handovers, self.handovers.as_ref().map_or(0, Handovers::unknown)),
            (LossCause::EnginesRefused, self.handovers.as_ref().map_or(0, Handovers::refused)),
            (LossCause::ThreadsRefused, self.handovers.as_ref().map_or(0, Handovers::threads_refused)),
            (LossCause::StacksRefused, self.left_out),
            (LossCause::PythonRefused, self.pythons.as_ref().map_or(0, Pythons::refused)),
            (LossCause::PythonStacksUneven, self.pythons.as_ref().map_or(0, Pythons::uneven)),
        ];
        all.extend(self.trace.iter().flat_map(|trace| trace.losses(&self.recorder, &losses)));
        all.extend(self.sources.iter().flat_map(|source| source.losses(&self.recorder, &losses)));
        for (cause, count) in all {
            let reported = self.reported_losses.entry(cause).or_default();
            let new = count.saturating_sub(*reported);
            if new > 0 {
                *reported = count;
                self.sink.push(&Event::Loss(Loss { cause, count: new }));
            }
        }
    }
}
