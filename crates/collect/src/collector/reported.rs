//! Launches that threads reported by themselves, in order with the records of the probes.
//!
//! The slots are read before the ring buffer, and launches and records are taken in order of time: what the probes saw
//! before a launch is then in the ring. A process can write any launch it likes into its own slots, as it could call
//! the marker; numbers of stacks and calls that are not its own are ignored.

use bpf::{Cause, Origin, Record};
use model::event::{Event, Launch, LaunchKind, ProcessId, StackId};

use super::parts::Collector;
use crate::{
    sessions::{ReportedLaunch, Sessions},
    sink::Sink,
};

/// How long a launch waits for the record of the call that handed its work over, which is already in the ring.
const PATIENCE: u64 = 1_000_000_000;
/// The most launches that wait for it.
const MOST_AWAITING: usize = 4096;

impl<S: Sink> Collector<S> {
    /// Reads the launches that threads have reported. Called before the ring is read: what the probes saw before one of
    /// these launches is then in the ring. Returns `true` if there were any.
    pub(super) fn read_reported(&mut self) -> bool {
        let Some(sessions) = &mut self.sessions else { return false };
        let (before, reported) = (self.reported.len(), &mut self.reported);
        let more = sessions.read_launches(&mut |launch| reported.push_back(launch));
        let any = reported.len() > before;
        reported.extend(self.awaiting.drain(..));
        self.sort_reported(before);
        any || more
    }

    /// Sorts the launches by time, of which those from `new` on were added.
    fn sort_reported(&mut self, new: usize) {
        if self.reported.len() == new {
            return;
        }
        // A process writes the time itself; nobody else's events must wait for it.
        let now = bpf::now();
        for reported in self.reported.range_mut(new..) {
            reported.launch.time = reported.launch.time.min(now);
        }
        self.reported.make_contiguous().sort_by_key(|reported| reported.launch.time);
    }

    /// Reads the last launches of an image that has ended, before what is known of it is removed.
    pub(super) fn read_last_reported(&mut self, record: &Record) {
        let ended = match record {
            Record::Exit { image, .. } => *image,
            Record::Process(new) if new.origin == Origin::Exec => new.parent,
            _ => return,
        };
        let (Some(sessions), before) = (&mut self.sessions, self.reported.len()) else { return };
        let reported = &mut self.reported;
        sessions.read_last_launches(ProcessId(ended), &mut |launch| reported.push_back(launch));
        self.sort_reported(before);
    }

    /// Takes the reported launches that are older than this.
    pub(super) fn take_reported(&mut self, time: u64) {
        let due = self.reported.partition_point(|reported| reported.launch.time < time);
        if due == 0 {
            return;
        }
        let now = bpf::now();
        for reported in self.reported.drain(..due).collect::<Vec<_>>() {
            let recent = now.saturating_sub(reported.launch.time) < PATIENCE;
            if recent && self.awaiting.len() < MOST_AWAITING && !self.knows_cause(reported) {
                self.awaiting.push(reported);
            } else {
                self.take_launch(reported);
            }
        }
    }

    /// Takes all that are left, at the end.
    pub(super) fn take_all_reported(&mut self) {
        self.read_reported();
        while let Some(reported) = self.reported.pop_front() {
            self.take_launch(reported);
        }
    }

    fn knows_cause(&self, reported: ReportedLaunch) -> bool {
        match (Cause::of(reported.launch.cause), &self.handovers) {
            (Cause::Call(id), Some(handovers)) => handovers.knows(id),
            _ => true,
        }
    }

    fn take_launch(&mut self, ReportedLaunch { session, process, renamed, launch }: ReportedLaunch) {
        let wire::launches::Launch { correlation, work, tid, cpu, cause, time, stack, python, previous, took } = launch;
        for (pid, mapping) in self.images.up_to(time) {
            self.mapped(&mapping, pid);
        }
        let Some(kind) = LaunchKind::from_number(work as u8) else { return };
        let outer = self.thread_ids.outer(process, renamed, tid, time);
        let tid = outer.unwrap_or(0);
        if let Some(sessions) = &mut self.sessions {
            sessions.count_unprobed(python != 0);
            sessions.count_unknown_thread(outer.is_none());
        }
        let stack = self.recognised_stack(process, stack);
        let known = self.pythons.as_ref().is_some_and(|pythons| pythons.knows(process, python));
        let python = if known { python } else { 0 };
        let stack = self.handed_stack(process.0, (stack, python), (Cause::of(cause), tid), time);
        self.launch_returned(session, (previous != 0).then_some((previous, took)));
        let rate = ((work >> wire::RATE_SHIFT) as u8).min(15);
        self.sink.push(&Event::Launch(Launch { session, correlation, kind, process, tid, cpu, time, stack, rate }));
    }
    /// Returns a stack that a thread of this process has recognised; 0 if it is no stack of the process. A process may name any
    /// number; those of stacks that it knows have been sent before.
    pub(super) fn recognised_stack(&mut self, process: ProcessId, stack: u64) -> u64 {
        match self.sink.owner(StackId(stack)) {
            Some(owner) if owner == process => return stack,
            Some(_) => self.sessions.iter_mut().for_each(Sessions::count_foreign),
            None => {}
        }
        0
    }
}
