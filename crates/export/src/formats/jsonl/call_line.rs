//! A line of JSON about one event of a trace: a call, an off-CPU interval, memory, or GPU work.

use analysis::{
    CallView,
    names::{OFF_CPU, library, off_cpu},
    trace::{
        reading::Reading,
        values::{Arguments, Outcome},
    },
};
use model::{
    calls::Placed,
    event::{Activity, Call, Launch, Layer, SessionId, Switch, Work},
};
use serde::Serialize;

/// One line.
#[derive(Serialize)]
pub(super) struct Line<'a, A: Serialize> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_id: Option<u64>,
    /// When the innermost call around it began, also one that has no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ts: Option<f64>,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) name: &'a str,
    pub(super) phase: char,
    pub(super) pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) depth: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) args: Option<A>,
    /// The bytes that it allocates, frees, copies or sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<u64>,
    #[serde(flatten)]
    pub(super) memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ret: Option<Outcome>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) error: bool,
    /// A call around it returns a status of its own, which counts this error.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) enclosed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) correlation: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) library: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) nested: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stack: Option<Vec<String>>,
}

/// Appends a line, or two if begin and end are separate events. The first has the arguments, the second the results.
pub(super) fn write<A: Serialize>(mut line: Line<'_, A>, view: CallView, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let mut append = |line: &Line<'_, A>| {
        serde_json::to_writer(&mut *out, line)?;
        out.push(b'\n');
        Ok(())
    };
    let (true, 'X', Some(ts), Some(duration)) = (view.begin_end, line.phase, line.ts, line.duration_us) else {
        return append(&line);
    };
    let (ret, error, enclosed) = (line.ret.take(), line.error, line.enclosed);
    (line.phase, line.error, line.enclosed, line.duration_us) = ('B', false, false, None);
    append(&line)?;
    // Whole nanoseconds, so that the end of a call is not before that of the calls within it.
    line.ts = Some(((ts * 1e9).round() + (duration * 1e3).round()) / 1e9);
    (line.phase, line.ret, line.error, line.duration_us) = ('E', ret, error, Some(duration));
    (line.enclosed, line.args, line.size, line.stack) = (enclosed, None, None, None);
    append(&line)
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Additional fields of a line about memory.
#[derive(Serialize)]
pub(super) struct Memory {
    pub(super) op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<String>,
    pub(super) kind: &'static str,
    pub(super) live_bytes: u64,
}

/// Fields of an off-CPU interval.
#[derive(Serialize)]
pub(super) struct SwitchArgs {
    state: &'static str,
    preempted: bool,
}

/// Fields of GPU work: see [`Work`].
#[derive(Default, Serialize)]
pub(super) struct GpuArgs {
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

impl<'n, A: Serialize> Line<'n, A> {
    /// Returns a line with the fields that every line has.
    pub(super) fn new(start: u64, at: u64, kind: &'static str, name: &'n str, phase: char, args: A) -> Self {
        Self {
            event_id: None,
            parent_id: None,
            parent_ts: None,
            ts: Some(seconds(at, start)),
            kind,
            name,
            phase,
            pid: 0,
            tid: None,
            depth: None,
            args: Some(args),
            size: None,
            memory: None,
            ret: None,
            error: false,
            enclosed: false,
            duration_us: None,
            correlation: None,
            session: None,
            library: None,
            nested: false,
            stack: None,
        }
    }

    /// Sets its number, and that of the call around it.
    pub(super) fn numbered(self, placed: Placed) -> Self {
        Self { event_id: Some(placed.id), parent_id: placed.parent, ..self }
    }
}

impl<'r> Line<'r, Arguments> {
    /// Returns the line of a call.
    pub(super) fn call(start: u64, call: &Call, reading: Reading<'r>) -> Self {
        let (kind, phase) = match (reading.function.layer, call.end) {
            (Layer::Point, _) => ("kernel", 'i'),
            (Layer::Library, 0) => ("userspace", 'B'),
            (Layer::Library, _) => ("userspace", 'X'),
            (_, 0) => ("kernel", 'B'),
            (..) => ("kernel", 'X'),
        };
        Self {
            parent_ts: around(call.around, start),
            tid: Some(call.tid),
            depth: Some(call.depth),
            size: reading.size,
            ret: reading.result,
            error: reading.failed,
            enclosed: reading.failed && call.enclosed,
            duration_us: call.duration().filter(|_| phase == 'X').map(micros),
            correlation: call.launch.map(|(_, correlation)| correlation),
            library: Some(library(reading.function)),
            nested: call.nested,
            ..Self::new(start, call.start, kind, &reading.function.name, phase, reading.args)
        }
    }
}

impl Line<'static, ()> {
    /// Returns the line of a launch, in a recording without calls.
    pub(super) fn launch(start: u64, launch: &Launch, name: &'static str) -> Self {
        Self {
            tid: Some(launch.tid),
            args: None,
            correlation: Some(launch.correlation),
            ..Self::new(start, launch.time, "userspace", name, 'i', ())
        }
    }
}

impl Line<'static, SwitchArgs> {
    /// Returns the line of an off-CPU interval.
    pub(super) fn switch(start: u64, switch: &Switch) -> Self {
        let args = SwitchArgs { state: off_cpu(switch), preempted: switch.preempted };
        Self {
            parent_ts: around(switch.around, start),
            tid: Some(switch.tid),
            depth: Some(switch.depth),
            duration_us: Some(micros(switch.end.saturating_sub(switch.start))),
            ..Self::new(start, switch.start, "scheduler", OFF_CPU, 'X', args)
        }
    }
}

impl<'n> Line<'n, GpuArgs> {
    /// Returns the line of work on the GPU with this number.
    pub(super) fn gpu(start: u64, activity: &Activity, name: &'n str, device: u32) -> Self {
        let mut args = GpuArgs {
            device,
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
        let size = args.bytes;
        let line = Self::new(start, activity.start, "gpu", name, phase, args);
        Self {
            ts: line.ts.filter(|_| timed),
            size,
            duration_us: finished.then(|| micros(activity.duration())),
            correlation: Some(activity.correlation),
            ..line
        }
    }
}

/// Seconds since the start. A double is exact to the nanosecond for 104 days.
fn seconds(time: u64, start: u64) -> f64 {
    if time >= start { (time - start) as f64 / 1e9 } else { -((start - time) as f64) / 1e9 }
}

/// Returns when a call around began, if there is one.
fn around(time: u64, start: u64) -> Option<f64> {
    (time != 0).then(|| seconds(time, start))
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
