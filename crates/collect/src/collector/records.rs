//! Converts records of the BPF programs to events.

use bpf::{Cause, LaunchRecord, Origin, Record};
use model::event::{
    self, Event, Frame, Launch, LaunchKind, NodeStack, ProcessId, Returned, Sample, SessionId, Stack, StackEnd,
    StackId, Thread,
};
use unwind::Ended;
use wire::Refusal;

use super::parts::Collector;
use crate::{
    process::reused::Reused,
    sink::Sink,
    stacks::{python::Pythons, unwinding::Walked},
};

impl<S: Sink> Collector<S> {
    /// Handles one record; most become an event.
    pub(super) fn take(&mut self, record: Record) {
        if let Some(event) = self.event(record) {
            self.sink.push(&event);
        }
    }

    fn event(&mut self, record: Record) -> Option<Event> {
        match record {
            Record::Stack(s) => Some(Event::Stack(stack(s.id, s.image, s.time, &s.kernel, &s.user, s.result))),
            Record::RawStack(_) | Record::PythonStack(_) | Record::PythonCode(_) | Record::Memo(_) => {
                self.take_stack_part(record);
                None
            }
            Record::Handover(_) | Record::Task(_) | Record::Forward(_) | Record::Started(_) => {
                self.take_cause(record);
                None
            }
            Record::Launch(launch) => self.marked(&launch),
            Record::Sample { image, stack, python, time, tid, cpu, cause } => Some(Event::Sample(Sample {
                process: ProcessId(image),
                tid,
                cpu,
                time,
                stack: self.handed_stack(image, (stack, python), (cause, tid), time),
                weight: self.period,
            })),
            Record::Process(new) if new.origin == Origin::Found => {
                self.thread_ids.began(ProcessId(new.image), new.inner, new.pid, new.time);
                self.adopt(new.pid, ProcessId(new.image), new.time, &new.comm);
                None
            }
            Record::Process(new) => Some(self.born(new)),
            Record::ThreadEnd { image, tid, inner, .. } => {
                self.thread_ids.ended(ProcessId(image), inner);
                if let Some(handovers) = &mut self.handovers {
                    handovers.thread_ended(ProcessId(image), tid);
                }
                None
            }
            Record::Thread { image, tid, inner, time, comm } => {
                let process = ProcessId(image);
                self.thread_ids.began(process, inner, tid, time);
                Some(Event::Thread(Thread { process, tid, comm }))
            }
            Record::Exit { image, time, pid } => {
                self.images.died(pid, time);
                self.died(ProcessId(image));
                Some(Event::Exit(event::Exit { process: ProcessId(image), time }))
            }
            of_source => {
                let mut left = Some(of_source);
                self.each_source(|source, around| left = left.take().and_then(|record| source.take(record, around)));
                None
            }
        }
    }

    /// Handles what a stack consists of, and what determined its walk.
    fn take_stack_part(&mut self, record: Record) {
        match (record, &mut self.pythons) {
            (Record::RawStack(raw), _) => self.unwinding.raw(*raw),
            (Record::PythonStack(stack), Some(pythons)) => pythons.stack(&stack),
            (Record::PythonCode(code), Some(pythons)) => pythons.code(*code),
            (Record::Memo(memo), pythons) => {
                let (walked, image) = (self.sink.stack(StackId(memo.stack)), ProcessId(memo.image));
                let pythons = pythons.as_ref().zip(walked);
                let without_python = pythons.is_some_and(|(pythons, stack)| pythons.shows_no_frames(image, &stack));
                if let Some(sessions) = &mut self.sessions {
                    sessions.remember(&memo, without_python);
                }
            }
            _ => {}
        }
    }

    /// Handles what caused the work of other threads.
    fn take_cause(&mut self, record: Record) {
        let stack = match &record {
            Record::Handover(call) | Record::Task(call) => {
                Some(self.handed_stack(call.image, (call.stack, call.python), (call.cause, call.tid), call.time))
            }
            Record::Forward(part) => Some(self.whole_stack(part.image, part.stack, part.python, part.time)),
            Record::Started(start) if start.python != 0 => {
                let taken = (start.stack, start.python);
                Some(self.handed_stack(start.image, taken, (start.cause, start.creator), start.time))
            }
            _ => None,
        };
        let Some(handovers) = &mut self.handovers else { return };
        match (record, stack) {
            (Record::Handover(call), Some(stack)) => handovers.begun(&call, stack),
            (Record::Task(call), Some(stack)) => handovers.tasks(&call, stack),
            (Record::Forward(part), Some(stack)) => handovers.part(&part, stack),
            (Record::Started(start), stack) => {
                handovers.started(ProcessId(start.image), start.tid, start.creator, stack);
            }
            _ => {}
        }
    }

    /// Handles a call of the marker: a launch, a new node of a graph, or why the injected library does nothing.
    fn marked(&mut self, marked: &LaunchRecord) -> Option<Event> {
        let &LaunchRecord { image, tid, time, correlation, work, .. } = marked;
        let (process, sessions) = (ProcessId(image), self.sessions.as_mut()?);
        if u32::from(work) >= Refusal::BASE {
            sessions.refused(process, marked.pid, Refusal::from_work(work.into())?, correlation);
            return None;
        }
        let native = if marked.recognised.native { self.recognised_stack(process, marked.stack) } else { marked.stack };
        let (taken, sessions) = ((native, marked.python), self.sessions.as_mut()?);
        if u32::from(work) == wire::WORK_NODE {
            let session = sessions.id(marked.session, process)?;
            let stack = self.handed_stack(image, taken, (marked.cause, tid), time);
            return Some(Event::NodeStack(NodeStack { session, mark: correlation, process, tid, time, stack }));
        }
        sessions.count_probed(marked.recognised);
        let kind = LaunchKind::from_number(work as u8)?;
        let session = sessions.id(marked.session, process)?;
        if marked.python_hash != 0 {
            sessions.remember_python(session, marked.python_hash, marked.python);
        }
        self.launch_returned(session, marked.returned);
        let stack = self.handed_stack(image, taken, (marked.cause, tid), time);
        let rate = ((work >> wire::RATE_SHIFT) as u8).min(15);
        Some(Event::Launch(Launch { session, correlation, kind, process, tid, cpu: marked.cpu, time, stack, rate }))
    }

    /// Pushes the end of a thread's last launch. A trace has the whole call.
    pub(super) fn launch_returned(&mut self, session: SessionId, returned: Option<(u32, u64)>) {
        let traced = self.trace.as_ref().is_some_and(|trace| !trace.beside_profile);
        if let Some((correlation, took)) = returned.filter(|_| !traced) {
            self.sink.push(&Event::Returned(Returned { session, correlation, took }));
        }
    }

    /// Combines the native and the Python part of a launch's or sample's stack.
    pub fn whole_stack(&mut self, image: u32, native: u64, python: u64, time: u64) -> StackId {
        let image = ProcessId(image);
        let native = self.native_stack(image, native, time);
        if self.sink.is_full(image) && self.sink.owner(Pythons::pair_id(native, python)).is_none() {
            self.left_out += 1;
            self.unwinding.set_full(image);
            return StackId::LEFT_OUT;
        }
        match &mut self.pythons {
            Some(pythons) => pythons.pair(image, native, python, time),
            None => StackId(native),
        }
    }

    /// The same, below the stack of the call that handed the work to this thread, or that started this thread, if there was
    /// one.
    pub(super) fn handed_stack(
        &mut self,
        image: u32,
        (native, python): (u64, u64),
        cause: (Cause, u32),
        time: u64,
    ) -> StackId {
        let stack = self.whole_stack(image, native, python, time);
        let Some(handovers) = self.handovers.as_mut().filter(|_| stack != StackId::LEFT_OUT) else { return stack };
        handovers.under(ProcessId(image), (StackId(native), stack), cause, time, &self.sink)
    }

    /// Returns the native part: a different stack if its addresses have been reused by another file.
    fn native_stack(&mut self, image: ProcessId, native: u64, time: u64) -> u64 {
        if !self.reused.any() {
            return native;
        }
        let Some(stack) = self.sink.stack(StackId(native)) else { return native };
        let unwinding = &self.unwinding;
        let Some(other) = self.reused.at(&stack, time, |address| unwinding.alike(image, address)) else {
            return native;
        };
        let id = other.id;
        if self.sink.owner(id).is_none() {
            self.sink.push(&Event::Stack(other));
        }
        id.0
    }
}

/// Converts a stack walked in user space, with the mappings of its process at the time; its id is unique.
pub(super) fn walked(walked: Walked, reused: &Reused) -> Stack {
    let raw = &walked.raw;
    let stack = stack(raw.id, raw.image, raw.time, &raw.kernel, &walked.user, walked.ended as u8);
    match reused.at(&stack, raw.time, |_| true) {
        Some(other) => Stack { id: stack.id, ..other },
        None => stack,
    }
}

fn stack(id: u64, image: u32, time: u64, kernel: &[u64], user: &[u64], result: u8) -> Stack {
    let kernel = kernel.iter().copied().map(Frame::Kernel);
    let user = user.iter().copied().map(Frame::User);
    // The walker's numbers start with "not ended"; beyond the first two, the numbers are the same.
    let end = match result {
        r if r == Ended::Whole as u8 => StackEnd::Whole,
        r if r == Ended::Truncated as u8 => StackEnd::Truncated,
        r => StackEnd::from_number(r),
    };
    Stack { id: StackId(id), process: ProcessId(image), time, frames: kernel.chain(user).collect(), end }
}
