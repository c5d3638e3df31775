//! The end: what is still on its way is taken, and everything is detached.

use std::{process::Child, time::Instant};

use bpf::Mappings;
use model::event::{Event, Loss, LossCause, Note};
use symbols::Kept;

use super::{parts::Collector, records, run::IDLE};
use crate::{
    calls::{sums, tracer::Tracer},
    command::signals::Signals,
    process::procfs,
    sessions::Sessions,
    sink::Sink,
    stacks::{python::Pythons, unwinding::Tables},
};
use std::time::Duration;

/// How long a recording waits for the last GPU records of processes that run on.
const LAST_RECORDS: Duration = Duration::from_millis(500);

/// What is left of a collector once everything is detached.
pub struct Collected<S> {
    /// Where the events went.
    pub sink: S,
    /// Signals sent to warpscope.
    pub signals: Signals,
    /// What is needed to name addresses.
    pub kept: Kept,
    /// What was traced.
    pub trace: Option<Tracer>,
    /// What collecting took.
    pub cost: Cost,
}

/// What collecting took.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The unwind tables.
    pub tables: Tables,
    /// Launches whose stack the program recognised by itself.
    pub recognised: u64,
}

impl<S: Sink> Collector<S> {
    /// Takes what is still on its way and detaches everything: whoever still runs is rid of us.
    pub fn finish(mut self) -> Collected<S> {
        self.end_sessions();
        if self.trace.is_some() {
            self.end_trace();
        }
        self.drain();
        if self.trace.is_some() {
            let sink = &mut self.sink;
            sums::read(&self.recorder, &mut |event| sink.push(&event));
            let missed = self.recorder.missed_by_hooks();
            if missed > 0 {
                self.note(format!(
                    "{missed} calls of kernel functions were missed (fentry): they were made inside another hook"
                ));
            }
        }
        if self.period > 0 {
            self.kept.keep_bpf_programs();
        }
        let recognised = self.sessions.as_ref().map_or(0, Sessions::recognised);
        let cost = Cost { tables: self.unwinding.tables(), recognised };
        Collected { sink: self.sink, signals: self.signals, kept: self.kept, trace: self.trace, cost }
    }

    /// Notes that the recording stopped after so many seconds while the command was running.
    pub fn note_stop(&mut self, seconds: f64, child: &Child) {
        let pid = child.id();
        let comm = procfs::comm(pid).map_or_else(String::new, |comm| format!(" ({comm})"));
        self.note(format!("warpscope stopped recording after {seconds} s while process {pid}{comm} was running"));
    }

    fn note(&mut self, text: String) {
        self.sink.push(&Event::Note(Note { text }));
    }

    /// The recording stops while processes may run on: their injected libraries send what they have and finish.
    fn end_sessions(&mut self) {
        let Some(sessions) = &self.sessions else { return };
        sessions.tell_to_finish();
        let deadline = Instant::now() + LAST_RECORDS;
        while self.sessions.as_ref().is_some_and(Sessions::any_open) && Instant::now() < deadline {
            if !self.gather() {
                self.sleep(IDLE, None);
            }
        }
    }

    /// Ends a trace: nothing is watched any more, and calls that have not returned are reported.
    fn end_trace(&mut self) {
        if let Err(error) = self.recorder.end_trace() {
            self.note(format!("calls still under way are not in the trace: {error}"));
        }
    }

    /// After the end: takes what is still on its way, until nothing comes any more.
    fn drain(&mut self) {
        while self.gather() {}
        self.take_hits(true);
        let (sink, reused) = (&mut self.sink, &self.reused);
        self.unwinding.finish_all(&mut |walked| sink.push(&Event::Stack(records::walked(walked, reused))));
        if let Some(pythons) = &mut self.pythons {
            pythons.finish(sink);
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.finish(&mut |event| sink.push(&event));
        }
        if let Some(events) = &self.events {
            events.finish(&mut |event| sink.push(&event));
        }
        self.count_losses();
    }

    /// Takes what was added up of events since the last time. A key whose announcement has not come yet waits for it, unless
    /// this is the last time.
    pub(super) fn take_hits(&mut self, last: bool) {
        if self.events.is_none() {
            return;
        }
        let sums = self.recorder.hit_sums();
        // The stacks of all that was read are in the ring by then.
        while last && self.gather() {}
        for (key, sum) in sums {
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

    fn count_losses(&mut self) {
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
            (LossCause::Mappings, mappings),
            (LossCause::UnparsedRecords, losses.unparsed + self.mappings.as_ref().map_or(0, Mappings::unparsed)),
            (LossCause::UnwindTables, self.unwinding.panics()),
            (LossCause::PythonStacksUneven, self.pythons.as_ref().map_or(0, Pythons::uneven)),
        ] {
            if count > 0 {
                self.sink.push(&Event::Loss(Loss { cause, count }));
            }
        }
    }
}
