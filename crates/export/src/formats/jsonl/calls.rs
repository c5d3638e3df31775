//! Trace events as lines of JSON with one schema: calls, requests to the driver, tracepoints, memory, switches, GPU
//! work.

use analysis::{
    CallView,
    names::{self, SessionKernels},
    trace::{
        reading::{Reader, Reading},
        values::Arguments,
    },
};
use model::{
    calls::{MemoryChange, MemoryChanges, MemoryOperation, Nesting, Placed, Tier},
    event::{Activity, Call, Event, ProcessId, SessionId, StackId, Switch},
    profile::Profile,
};

use super::{
    call_line::{GpuArgs, Line, Memory, SwitchArgs, write},
    launched::Launched,
};

/// Writes the lines of one file, and numbers them. A call is numbered when it arrives, or earlier when an event within
/// it arrives and names the call as its parent.
pub(super) struct TraceLines<'a> {
    profile: &'a Profile,
    start: u64,
    reader: Reader,
    nesting: Nesting,
    launched: Launched,
    memory: MemoryChanges<'a>,
    view: CallView,
    /// Calls that the view left out.
    pub(super) left_out: u64,
}

impl<'a> TraceLines<'a> {
    pub(super) fn new(profile: &'a Profile, view: CallView) -> Self {
        let start = profile.start.as_ref().map_or(0, |start| start.time);
        let launched = Launched::new(profile.calls.launching > 0);
        Self {
            profile,
            start,
            reader: Reader::for_second_pass(profile),
            nesting: profile.calls.nesting.for_second_pass(),
            launched,
            memory: MemoryChanges::new(&profile.calls.functions),
            view,
            left_out: 0,
        }
    }

    /// Appends the lines of an event, if it has any. GPU work waits for the call that launched it.
    pub(super) fn event(
        &mut self,
        event: &Event,
        kernels: &SessionKernels<'_>,
        out: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        self.reader.learn(event);
        match event {
            Event::Call(call) => {
                let Some(reading) = self.reader.read(call) else { return Ok(()) };
                let thread = (call.process, call.tid);
                let placed = match Tier::of(reading.function) {
                    Some(tier) => self.nesting.call(thread, tier, call.start, call.around, call.duration()),
                    None => self.nesting.moment(thread, call.around),
                };
                let changes = self.memory.call(call);
                if self.view.shows(call) {
                    let mut line = self.call(placed, call, reading);
                    let freed = changes.iter().find(|change| change.operation == MemoryOperation::Free);
                    line.size = line.size.or_else(|| freed?.bytes);
                    write(line, self.view, out)?;
                } else {
                    self.left_out += 1;
                }
                for change in changes {
                    let placed = Placed { id: self.nesting.number(), parent: Some(placed.id), inside_ns: 0 };
                    write(self.memory(placed, call, change), self.view, out)?;
                }
                if let Some(launch) = call.launch.filter(|_| call.launches) {
                    for activity in self.launched.by(launch, placed.id) {
                        self.activity(&activity, Some(placed.id), kernels, out)?;
                    }
                }
            }
            Event::Switch(switch) => {
                let placed = self.nesting.moment((switch.process, switch.tid), switch.around);
                write(self.switch(placed, switch), self.view, out)?;
            }
            Event::Activity(activity) => {
                let (parent, overdue) = self.launched.parent(*activity);
                if parent.is_some() {
                    self.activity(activity, parent, kernels, out)?;
                }
                if let Some(activity) = overdue {
                    self.activity(&activity, None, kernels, out)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends the GPU work that waits for calls that never arrived.
    pub(super) fn finish(&mut self, kernels: &SessionKernels<'_>, out: &mut Vec<u8>) -> serde_json::Result<()> {
        for activity in self.launched.waiting() {
            self.activity(&activity, None, kernels, out)?;
        }
        Ok(())
    }

    fn call<'r>(&self, placed: Placed, call: &Call, reading: Reading<'r>) -> Line<'r, Arguments> {
        let line = Line::call(self.start, call, reading).numbered(placed);
        Line {
            pid: self.pid(call.process),
            session: call.launch.and_then(|(session, _)| self.session(session)),
            stack: call.stack.map(|id| self.stack(id)),
            ..line
        }
    }

    fn stack(&self, id: StackId) -> Vec<String> {
        self.profile.frames(id).iter().map(names::raw_frame).collect()
    }

    fn memory(&self, placed: Placed, call: &Call, change: MemoryChange) -> Line<'static, ()> {
        // Memory exists from the return of an allocation to the entry of a free.
        let (op, at) = match change.operation {
            MemoryOperation::Alloc => ("alloc", call.end),
            MemoryOperation::Free => ("free", call.start),
            MemoryOperation::Release => ("release", call.start),
        };
        Line {
            pid: self.pid(call.process),
            tid: Some(call.tid),
            size: change.bytes,
            memory: Some(Memory {
                op,
                address: change.address.map(|address| format!("{address:#x}")),
                kind: change.space.name(),
                live_bytes: change.live_bytes,
            }),
            args: None,
            ..Line::new(self.start, at, "memory", op, 'i', ()).numbered(placed)
        }
    }

    fn switch(&self, placed: Placed, switch: &Switch) -> Line<'static, SwitchArgs> {
        Line {
            pid: self.pid(switch.process),
            stack: switch.stack.map(|id| self.stack(id)),
            ..Line::switch(self.start, switch).numbered(placed)
        }
    }

    fn activity(
        &mut self,
        activity: &Activity,
        parent: Option<u64>,
        kernels: &SessionKernels<'_>,
        out: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        let placed = Placed { id: self.nesting.number(), parent, inside_ns: 0 };
        write(self.gpu(placed, activity, kernels.operation(activity)), self.view, out)
    }

    fn gpu<'n>(&self, placed: Placed, activity: &Activity, name: &'n str) -> Line<'n, GpuArgs> {
        let process = self.profile.sessions.get(&activity.session).map(|session| session.process);
        let device = self.profile.device(activity.session, activity.device);
        Line {
            pid: process.map_or(0, |process| self.pid(process)),
            session: self.session(activity.session),
            ..Line::gpu(self.start, activity, name, device).numbered(placed)
        }
    }

    fn pid(&self, process: ProcessId) -> u32 {
        self.profile.processes.get(&process).map_or(0, |p| p.pid)
    }

    /// With a single CUDA process, the correlation id is sufficient.
    fn session(&self, session: SessionId) -> Option<SessionId> {
        (self.profile.sessions.len() > 1).then_some(session)
    }
}
