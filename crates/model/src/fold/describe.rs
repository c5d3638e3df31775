//! The rarer events: those that describe what the frequent ones refer to, such as processes, names and the nodes of graphs, and
//! sums and totals.

use super::{Fold, add};
use crate::{
    event::{Event, LaunchKind, LossCause, Process, ProcessId, Session, Stack},
    merge,
    profile::{ProcessInfo, SessionInfo},
};

/// The most different notes: processes cause some of them.
const MOST_NOTES: usize = 1 << 10;

impl Fold {
    /// Adds one of the rarer events.
    pub(super) fn describe(&mut self, event: &Event) {
        let profile = &mut self.profile;
        match event {
            Event::Start(start) => {
                profile.note_time(start.time);
                profile.start.get_or_insert_with(|| start.clone());
            }
            Event::Process(process) => self.process(process),
            Event::Thread(thread) => {
                profile.threads.insert((thread.process, thread.tid), thread.comm.clone());
            }
            Event::Exit(exit) => {
                profile.note_time(exit.time);
                if let Some(process) = profile.processes.get_mut(&exit.process) {
                    process.end = exit.time;
                }
            }
            Event::Mapping(mapping) => {
                profile.note_time(mapping.time);
                profile.mappings.push(mapping.clone());
            }
            Event::Stack(stack) => self.stack(stack),
            Event::Session(session) => {
                let Session { id, process, cupti, driver } = *session;
                profile.sessions.insert(id, SessionInfo { process, cupti, driver, mps: false });
            }
            Event::RangeName(name) => profile.ranges.declare(name),
            Event::Range(range) => {
                profile.note_time(range.end);
                profile.ranges.add(range);
            }
            Event::RangedLaunch(launch) => self.gpu.ranged.note(launch, &profile.ranges),
            Event::Rank(rank) => {
                if let Some(session) = profile.sessions.get_mut(&rank.session) {
                    session.mps |= rank.mps;
                    self.gpu.ranks.describe(rank);
                }
            }
            Event::Communicator(communicator) => self.gpu.communication.member(communicator),
            Event::CommunicatorCall(call) => {
                profile.note_time(call.time);
                self.gpu.communication.call(call);
            }
            Event::Counted(counted) => {
                let name = match counted.kind {
                    LaunchKind::Kernel => self.gpu.names.index(counted.session, counted.name),
                    _ => 0,
                };
                add(self.counted.entry((counted.session, counted.kind, name)).or_default(), counted.count);
            }
            Event::Sampling(sampling) => {
                profile.sampled.sessions.insert(sampling.session, *sampling);
            }
            Event::KernelName(name) => self.gpu.names.define(name),
            Event::Device(device) => self.gpu.describe(device),
            Event::Totals(totals) => {
                self.totals.insert(totals.session, *totals);
            }
            Event::SessionCost(cost) => {
                profile.cost.sessions.insert(cost.session, *cost);
            }
            Event::Pause(pause) => {
                profile.pauses.insert((pause.session, pause.number), pause.clone());
            }
            Event::OwnCost(cost) => profile.cost.own = Some(*cost),
            Event::ProgramCost(cost) => {
                profile.cost.programs.insert(cost.program, (cost.runs, cost.ns));
            }
            Event::Loss(loss) => add(profile.ledger.lost.causes.entry(loss.cause).or_default(), loss.count),
            Event::Note(note) => {
                if self.noted.len() < MOST_NOTES && self.noted.insert(note.text.clone()) {
                    profile.notes.push(note.text.clone());
                } else if !self.noted.contains(&note.text) {
                    add(profile.ledger.lost.causes.entry(LossCause::NotesRefused).or_default(), 1);
                }
            }
            Event::Dump(dump) => {
                profile.note_time(dump.time);
                profile.dump = Some(dump.clone());
            }
            Event::Symbol(symbol) => profile.symbols.add(symbol.clone()),
            Event::End(end) => {
                profile.note_time(end.time);
                profile.end = Some(*end);
            }
            Event::Energy(reading) => {
                profile.note_time(reading.time);
                self.gpu.meters.read(reading);
            }
            Event::Gpm(gpm) => {
                profile.note_time(gpm.end);
                self.gpu.counters.add_gpm(gpm);
            }
            Event::PmSamples(samples) => {
                profile.note_time(samples.end());
                self.gpu.counters.add_pm(samples);
                self.gpu.counter_samples.sample(samples);
            }
            Event::Function(function) if profile.is_recording() => self.memory.function(function),
            Event::Function(function) => profile.calls.function(function),
            Event::Sum(sum) => profile.calls.sum(sum),
            Event::ErrorSum(sum) => profile.calls.error_sum(*sum),
            Event::MemorySum(sum) => profile.calls.memory_sum(sum),
            Event::KernelSum(sum) => profile.calls.kernel_sum(*sum),
            Event::Counter(counter) => {
                profile.counters.all.insert(counter.id, counter.clone());
            }
            Event::CounterPoint(point) => {
                profile.counters.points.insert(point.id, point.clone());
            }
            Event::Hits(hits) => profile.counters.add(hits),
            Event::StallReason(reason) => profile.stalls.name(reason),
            Event::StallSamples(samples) => {
                profile.stalls.add(samples);
                self.gpu.stalled.sampled(samples, &mut profile.stalls);
            }
            Event::StallLines(lines) => profile.stalls.locate(lines),
            Event::InstructionText(text) => profile.stalls.disassemble(text),
            Event::SourceText(text) => profile.stalls.read(text),
            Event::StallTotals(totals) => {
                profile.stalls.totals.insert(totals.session, *totals);
            }
            Event::KernelCounter(counter) => self.gpu.measured.counted(counter),
            Event::LimitTotals(totals) => {
                profile.limit_totals.insert(totals.session, *totals);
            }
            Event::Failed(_) | Event::Captured(_) | Event::Empty(_) => self.causes.note(event),
            Event::NodeCreated(_) | Event::NodeStack(_) | Event::NodeCopied(_) | Event::GraphDestroyed(_) => {
                self.causes.note(event);
            }
            Event::Tensor(tensor) => {
                profile.note_time(tensor.time);
                self.memory.tensor(tensor);
            }
            Event::Shutdown(shutdown) => {
                profile.note_time(shutdown.time);
                self.memory.shutdown(shutdown);
            }
            Event::TensorFreed(freed) => {
                profile.note_time(freed.time);
                self.memory.freed(freed);
            }
            Event::HeldMemory(_) | Event::MemoryHolder(_) => self.memory.note(event),
            // They are frequent.
            Event::Launch(_) | Event::Activity(_) | Event::Sample(_) | Event::Call(_) | Event::Switch(_) => {}
            Event::Returned(_) | Event::Sync(_) | Event::Wait(_) => {}
        }
    }

    /// Adds an image. If its pid had another image whose end was not seen, that image ends here.
    fn process(&mut self, process: &Process) {
        let profile = &mut self.profile;
        profile.note_time(process.time);
        let before = self.images.insert((merge::recording_of(process.id), process.pid), process.id);
        if let Some(before) = before.filter(|id| *id != process.id).and_then(|id| profile.processes.get_mut(&id))
            && before.end == 0
        {
            before.end = process.time;
        }
        let info = profile
            .processes
            .entry(process.id)
            .or_insert_with(|| ProcessInfo { start: process.time, ..ProcessInfo::default() });
        info.pid = process.pid;
        info.parent = (process.parent != ProcessId(0)).then_some(process.parent);
        info.origin = process.origin;
        info.comm.clone_from(&process.comm);
    }

    fn stack(&mut self, stack: &Stack) {
        let profile = &mut self.profile;
        profile.note_time(stack.time);
        profile.stacks.insert(stack);
    }
}
