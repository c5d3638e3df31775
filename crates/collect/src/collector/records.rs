//! Converts records of the BPF programs to events.

use bpf::{Cause, Origin, Record, TensorChange, TensorRecord};
use model::event::{
    self, Event, Frame, Launch, LaunchKind, NodeStack, PointId, Process, ProcessId, Returned, Sample, SessionId,
    Shutdown, Stack, StackEnd, StackId, Tensor, TensorFreed, Thread, Wait,
};
use unwind::Ended;
use wire::Refusal;

use super::parts::Collector;
use crate::{
    calls::tracer::switch,
    process::{procfs, reused::Reused},
    sink::Sink,
    stacks::unwinding::Walked,
};

impl<S: Sink> Collector<S> {
    pub(super) fn take(&mut self, record: Record) {
        let event = match record {
            Record::Stack(s) => Event::Stack(stack(s.id, s.image, s.time, &s.kernel, &s.user, s.result)),
            Record::RawStack(raw) => {
                self.unwinding.raw(*raw);
                return;
            }
            Record::PythonStack(stack) => {
                if let Some(pythons) = &mut self.pythons {
                    pythons.stack(stack);
                }
                return;
            }
            Record::PythonCode(code) => {
                if let Some(pythons) = &mut self.pythons {
                    pythons.code(*code);
                }
                return;
            }
            Record::Memo(memo) => {
                let (walked, image) = (self.sink.stack(StackId(memo.stack)), ProcessId(memo.image));
                let pythons = self.pythons.as_ref().zip(walked);
                let without_python = pythons.is_some_and(|(pythons, stack)| pythons.shows_no_frames(image, stack));
                if let Some(sessions) = &mut self.sessions {
                    sessions.remember(&memo, without_python);
                }
                return;
            }
            Record::Call(call) => {
                if self.trace.as_ref().is_some_and(|trace| trace.is_own(&call)) {
                    return;
                }
                let sink = &mut self.sink;
                if let Some(trace) = &mut self.trace {
                    trace.check_init(&call, &mut self.recorder, &mut |event| sink.push(&event));
                }
                let placed = self.trace.as_mut().and_then(|trace| trace.place(*call));
                let Some(call) = placed else { return };
                let launch = call.launch.and_then(|launch| self.launch(launch, call.image));
                let stack =
                    (call.stack != 0).then(|| self.whole_stack(call.image, call.stack, call.python, call.start));
                let Some(trace) = &self.trace else { return };
                trace.call(call, launch, stack)
            }
            Record::Syscall(call) => {
                let launch = call.launch.and_then(|launch| self.launch(launch, call.image));
                let (Some(trace), sink) = (&mut self.trace, &mut self.sink) else { return };
                trace.syscall(*call, launch, &mut |event| sink.push(&event));
                return;
            }
            Record::Switch(record) => {
                let stack = (record.stack != 0)
                    .then(|| self.whole_stack(record.image, record.stack, record.python, record.out));
                switch(record, stack)
            }
            Record::Point(point) => {
                let Some(trace) = &self.trace else { return };
                trace.point(&point)
            }
            Record::Process { image, origin: Origin::Found, pid, time, comm, .. } => {
                self.adopt(pid, ProcessId(image), time, &comm);
                return;
            }
            Record::Launch { image, pid, correlation, work, .. } if u32::from(work) >= Refusal::BASE => {
                if let (Some(sessions), Some(refusal)) = (&mut self.sessions, Refusal::from_work(work.into())) {
                    sessions.refused(ProcessId(image), pid, refusal, correlation);
                }
                return;
            }
            Record::Handover(call) => {
                let stack = self.handed_stack(call.image, (call.stack, call.python), (call.cause, call.tid), call.time);
                if let Some(handovers) = &mut self.handovers {
                    handovers.begun(&call, stack);
                }
                return;
            }
            Record::Task(call) => {
                let stack = self.handed_stack(call.image, (call.stack, call.python), (call.cause, call.tid), call.time);
                if let Some(handovers) = &mut self.handovers {
                    handovers.tasks(&call, stack);
                }
                return;
            }
            Record::Forward(part) => {
                let stack = self.whole_stack(part.image, part.stack, part.python, part.time);
                if let Some(handovers) = &mut self.handovers {
                    handovers.part(&part, stack);
                }
                return;
            }
            Record::Started(start) => {
                let (image, taken) = (ProcessId(start.image), (start.stack, start.python));
                let stack = (start.python != 0)
                    .then(|| self.handed_stack(start.image, taken, (start.cause, start.creator), start.time));
                if let Some(handovers) = &mut self.handovers {
                    handovers.started(image, start.tid, start.creator, stack);
                }
                return;
            }
            Record::Launch { image, session, stack, python, time, tid, correlation, work, cause, .. }
                if u32::from(work) == wire::WORK_NODE =>
            {
                let Some(session) = self.sessions.as_mut().and_then(|s| s.id(session, ProcessId(image))) else {
                    return;
                };
                let (process, mark) = (ProcessId(image), correlation);
                let stack = self.handed_stack(image, (stack, python), (cause, tid), time);
                Event::NodeStack(NodeStack { session, mark, process, tid, time, stack })
            }
            Record::Launch {
                image,
                session,
                stack,
                python,
                time,
                tid,
                cpu,
                correlation,
                work,
                recognised,
                python_hash,
                returned,
                cause,
                ..
            } => {
                let Some(sessions) = &mut self.sessions else { return };
                sessions.count_recognised(recognised);
                let Some(kind) = LaunchKind::from_number(work as u8) else { return };
                let Some(session) = sessions.id(session, ProcessId(image)) else { return };
                if python_hash != 0 {
                    sessions.remember_python(session, python_hash, python);
                }
                self.launch_returned(session, returned);
                Event::Launch(Launch {
                    session,
                    correlation,
                    kind,
                    process: ProcessId(image),
                    tid,
                    cpu,
                    time,
                    stack: self.handed_stack(image, (stack, python), (cause, tid), time),
                    rate: ((work >> wire::RATE_SHIFT) as u8).min(15),
                })
            }
            Record::Hit(hit) => {
                let stack = self.whole_stack(hit.key.image, hit.key.stack, hit.key.python, hit.time);
                let (Some(events), sink) = (&mut self.events, &mut self.sink) else { return };
                events.hit(&hit, stack, &mut |event| sink.push(&event));
                return;
            }
            Record::Tensor(TensorRecord { image, tid, time, change }) => {
                let process = ProcessId(image);
                match change {
                    TensorChange::Allocated { address, bytes, device, stack, python, cause } => Event::Tensor(Tensor {
                        process,
                        tid,
                        time,
                        device,
                        address,
                        bytes,
                        stack: self.handed_stack(image, (stack, python), (cause, tid), time),
                    }),
                    TensorChange::Freed { address } => Event::TensorFreed(TensorFreed { process, tid, time, address }),
                    TensorChange::Shutdown => Event::Shutdown(Shutdown { process, time }),
                }
            }
            Record::Wait(wait) => Event::Wait(Wait {
                process: ProcessId(wait.key.image),
                tid: wait.tid,
                start: wait.time,
                end: wait.end,
                stack: self.whole_stack(wait.key.image, wait.key.stack, wait.key.python, wait.time),
                reason: PointId(wait.key.point),
            }),
            Record::Sample { image, stack, python, time, tid, cpu, cause } => Event::Sample(Sample {
                process: ProcessId(image),
                tid,
                cpu,
                time,
                stack: self.handed_stack(image, (stack, python), (cause, tid), time),
                weight: self.period,
            }),
            Record::Process { image, parent, origin, time, pid, comm } => {
                let id = ProcessId(image);
                self.images.born(pid, id, time, origin == Origin::Exec);
                let forked_from = (origin == Origin::Fork).then_some(ProcessId(parent));
                self.unwinding.born(id, forked_from);
                self.reused.born(id, forked_from);
                if let Some(parent) = forked_from {
                    if let Some(trace) = &mut self.trace {
                        trace.forked(id, parent);
                    }
                    self.kept.forked(id, procfs::in_proc(pid), parent);
                }
                if let Some(pythons) = &mut self.pythons {
                    pythons.born(id, forked_from);
                }
                if let Some(handovers) = &mut self.handovers {
                    handovers.born(id, forked_from);
                }
                if origin == Origin::Exec {
                    self.died(ProcessId(parent));
                    self.sink.push(&Event::Exit(event::Exit { process: ProcessId(parent), time }));
                }
                let origin = match origin {
                    Origin::Fork => event::Origin::Fork,
                    Origin::Exec => event::Origin::Exec,
                    Origin::Found => event::Origin::Found,
                };
                Event::Process(Process { id, parent: ProcessId(parent), origin, pid, time, comm })
            }
            Record::Thread { image, tid, comm } => Event::Thread(Thread { process: ProcessId(image), tid, comm }),
            Record::Exit { image, time, pid } => {
                self.images.died(pid, time);
                self.died(ProcessId(image));
                Event::Exit(event::Exit { process: ProcessId(image), time })
            }
        };
        self.sink.push(&event);
    }

    /// Pushes the end of a thread's last launch. A trace has the whole call.
    pub(super) fn launch_returned(&mut self, session: SessionId, returned: Option<(u32, u64)>) {
        if let (Some((correlation, took)), None) = (returned, &self.trace) {
            self.sink.push(&Event::Returned(Returned { session, correlation, took }));
        }
    }

    /// Returns a launch with the session id used in the recording.
    fn launch(&mut self, (session, correlation): (u64, u32), image: u32) -> Option<(SessionId, u32)> {
        Some((self.sessions.as_mut()?.id(session, ProcessId(image))?, correlation))
    }

    /// Combines the native and the Python part of a launch's or sample's stack.
    pub fn whole_stack(&mut self, image: u32, native: u64, python: u64, time: u64) -> StackId {
        let native = self.native_stack(ProcessId(image), native, time);
        match &mut self.pythons {
            Some(pythons) => pythons.pair(ProcessId(image), native, python, time),
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
        let Some(handovers) = &mut self.handovers else { return stack };
        handovers.under(ProcessId(image), (StackId(native), stack), cause, time, &self.sink)
    }

    /// Returns the native part: a different stack if its addresses have been reused by another file.
    fn native_stack(&mut self, image: ProcessId, native: u64, time: u64) -> u64 {
        if !self.reused.any() {
            return native;
        }
        let Some(stack) = self.sink.stack(StackId(native)) else { return native };
        let unwinding = &self.unwinding;
        let Some(other) = self.reused.at(stack, time, |address| unwinding.alike(image, address)) else { return native };
        let id = other.id;
        if self.sink.stack(id).is_none() {
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
