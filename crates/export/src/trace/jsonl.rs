//! Trace events as lines of JSON with one schema: calls, requests to the driver, tracepoints, memory, switches, GPU
//! work.

use model::{
    calls::{MemoryChange, MemoryChanges, MemoryOperation, Nesting, Placed, Tier},
    event::{Activity, Call, Event, Function, Layer, ProcessId, SessionId, StackId, Switch, Work},
    profile::Profile,
};
use serde::Serialize;

use super::{
    launched::Launched,
    line::{OFF_CPU, off_cpu},
    reading::{Reader, Reading},
    values::{Arguments, Outcome},
};
use crate::names::{self, SessionKernels};

/// Writes the lines of one file, and numbers them. A call is numbered when it arrives, or earlier when an event within
/// it arrives and names the call as its parent.
pub(crate) struct TraceLines<'a> {
    profile: &'a Profile,
    start: u64,
    reader: Reader,
    nesting: Nesting,
    launched: Launched,
    memory: MemoryChanges<'a>,
}

/// One line.
#[derive(Serialize)]
struct Line<'a, A: Serialize> {
    event_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    phase: char,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<A>,
    #[serde(flatten)]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ret: Option<Outcome>,
    #[serde(skip_serializing_if = "is_false")]
    error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    library: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    nested: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<String>>,
}

fn write<A: Serialize>(line: &Line<'_, A>, out: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.push(b'\n');
    Ok(())
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Additional fields of a line about memory.
#[derive(Serialize)]
struct Memory {
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    kind: &'static str,
    live_bytes: u64,
}

#[derive(Serialize)]
struct SwitchArgs {
    state: &'static str,
    preempted: bool,
}

/// Fields of GPU work: see [`Work`].
#[derive(Default, Serialize)]
struct GpuArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    grid: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    registers: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_memory: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<model::event::Direction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u32>,
    device: u32,
    context: u32,
    stream: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    graph_node: Option<u64>,
}

impl<'a> TraceLines<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        let start = profile.start.as_ref().map_or(0, |start| start.time);
        let launched = Launched::new(profile.calls.launching > 0);
        Self {
            profile,
            start,
            reader: Reader::again(profile),
            nesting: profile.calls.nesting.again(),
            launched,
            memory: MemoryChanges::new(&profile.calls.functions),
        }
    }

    /// Appends the lines of an event, if it has any. GPU work waits for the call that launched it.
    pub(crate) fn event(
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
                write(&self.call(placed, call, reading), out)?;
                for change in changes {
                    let placed = Placed { id: self.nesting.number(), parent: Some(placed.id), inside_ns: 0 };
                    write(&self.memory(placed, call, change), out)?;
                }
                if let Some(launch) = call.launch.filter(|_| call.launches) {
                    for activity in self.launched.by(launch, placed.id) {
                        self.activity(&activity, Some(placed.id), kernels, out)?;
                    }
                }
            }
            Event::Switch(switch) => {
                let placed = self.nesting.moment((switch.process, switch.tid), switch.around);
                write(&self.switch(placed, switch), out)?;
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
    pub(crate) fn finish(&mut self, kernels: &SessionKernels<'_>, out: &mut Vec<u8>) -> serde_json::Result<()> {
        for activity in self.launched.waiting() {
            self.activity(&activity, None, kernels, out)?;
        }
        Ok(())
    }

    fn call<'r>(&self, placed: Placed, call: &Call, reading: Reading<'r>) -> Line<'r, Arguments> {
        let (kind, phase) = match (reading.function.layer, call.end) {
            (Layer::Point, _) => ("kernel", 'i'),
            (Layer::Library, 0) => ("userspace", 'B'),
            (Layer::Library, _) => ("userspace", 'X'),
            (_, 0) => ("kernel", 'B'),
            (..) => ("kernel", 'X'),
        };
        let stack = call.stack.map(|id| self.stack(id));
        let line = self.line(placed, call.start, kind, &reading.function.name, phase, reading.args);
        Line {
            pid: self.pid(call.process),
            tid: Some(call.tid),
            depth: Some(call.depth),
            ret: reading.result,
            error: reading.failed,
            duration_us: call.duration().filter(|_| phase == 'X').map(micros),
            correlation: call.launch.map(|(_, correlation)| correlation),
            session: call.launch.and_then(|(session, _)| self.session(session)),
            library: Some(library(reading.function)),
            nested: call.nested,
            stack,
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
            memory: Some(Memory {
                op,
                address: change.address.map(|address| format!("{address:#x}")),
                bytes: change.bytes,
                kind: change.space.name(),
                live_bytes: change.live_bytes,
            }),
            args: None,
            ..self.line(placed, at, "memory", op, 'i', ())
        }
    }

    fn switch(&self, placed: Placed, switch: &Switch) -> Line<'_, SwitchArgs> {
        let args = SwitchArgs { state: off_cpu(switch), preempted: switch.preempted };
        Line {
            pid: self.pid(switch.process),
            tid: Some(switch.tid),
            depth: Some(switch.depth),
            duration_us: Some(micros(switch.end.saturating_sub(switch.start))),
            stack: switch.stack.map(|id| self.stack(id)),
            ..self.line(placed, switch.start, "scheduler", OFF_CPU, 'X', args)
        }
    }

    fn activity(
        &mut self,
        activity: &Activity,
        parent: Option<u64>,
        kernels: &SessionKernels<'_>,
        out: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        let name = match activity.work {
            Work::Kernel { name, .. } => kernels.name(activity.session, name).to_string(),
            Work::Copy { direction, .. } => format!("Memcpy {direction}"),
            Work::Memset { .. } => "Memset".to_owned(),
        };
        let placed = Placed { id: self.nesting.number(), parent, inside_ns: 0 };
        write(&self.gpu(placed, activity, &name), out)
    }

    fn gpu<'n>(&self, placed: Placed, activity: &Activity, name: &'n str) -> Line<'n, GpuArgs> {
        let mut args = GpuArgs {
            device: self.profile.device(activity.session, activity.device),
            context: activity.context,
            stream: activity.stream,
            graph: (activity.graph != 0).then_some(activity.graph),
            graph_node: (activity.graph != 0).then_some(activity.graph_node),
            ..GpuArgs::default()
        };
        match activity.work {
            Work::Kernel { grid, block, registers, shared_memory, .. } => {
                (args.grid, args.block) = (Some(grid), Some(block));
                (args.registers, args.shared_memory) = (Some(registers), Some(shared_memory));
            }
            Work::Copy { direction, bytes, .. } => (args.direction, args.bytes) = (Some(direction), Some(bytes)),
            Work::Memset { bytes, value, .. } => (args.bytes, args.value) = (Some(bytes), Some(value)),
        }
        let timed = activity.start != 0;
        let finished = timed && activity.end >= activity.start;
        let phase = if timed && activity.end == 0 { 'B' } else { 'X' };
        let process = self.profile.sessions.get(&activity.session).map(|session| session.process);
        let line = self.line(placed, activity.start, "gpu", name, phase, args);
        Line {
            ts: line.ts.filter(|_| timed),
            pid: process.map_or(0, |process| self.pid(process)),
            duration_us: finished.then(|| micros(activity.duration())),
            correlation: Some(activity.correlation),
            session: self.session(activity.session),
            ..line
        }
    }

    /// Returns a line with the fields that every line has.
    fn line<'n, A: Serialize>(
        &self,
        placed: Placed,
        at: u64,
        kind: &'static str,
        name: &'n str,
        phase: char,
        args: A,
    ) -> Line<'n, A> {
        Line {
            event_id: placed.id,
            parent_id: placed.parent,
            ts: Some(seconds(at, self.start)),
            kind,
            name,
            phase,
            pid: 0,
            tid: None,
            depth: None,
            args: Some(args),
            memory: None,
            ret: None,
            error: false,
            duration_us: None,
            correlation: None,
            session: None,
            library: None,
            nested: false,
            stack: None,
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

/// The module of a function: a library by its file name.
pub(crate) fn library(function: &Function) -> &str {
    match function.layer {
        Layer::Library => function.library.rsplit('/').next().unwrap_or(&function.library),
        _ => &function.library,
    }
}

/// Seconds since the start. A double is exact to the nanosecond for 104 days.
fn seconds(time: u64, start: u64) -> f64 {
    if time >= start { (time - start) as f64 / 1e9 } else { -((start - time) as f64) / 1e9 }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
