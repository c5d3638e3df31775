//! `.jsonl`: one JSON object per event, in order of arrival, with names resolved; the last line is the ledger.
//!
//! The work of a graph is written once its launch has arrived, because only then it is certain which stack created it.
//! A stack is written once, before the first line that refers to it, with a number that is local to this file. Trace
//! events have lines of their own kind: `calls`.

mod call_line;
mod calls;
mod launched;
mod live;
mod read_back;
mod start_line;

use std::{
    collections::{HashMap, HashSet},
    io::{self, Write},
};

use analysis::{
    Events,
    flame_tree::View,
    names::{self, SessionKernels},
    stalls, waits,
};
use model::{
    causes::{Cause, Causes, Joined},
    event::{Activity, Event, NO_PEER, Origin, ProcessId, SessionId, StackId, Work},
    gpu_counters::{CounterUnit, Source},
    ledger::Ledger,
    profile::Profile,
};
use serde::Serialize;

use self::{calls::TraceLines, start_line::StartLine};
pub use self::{
    live::LiveLines,
    read_back::{ReadError, read_back},
};
use crate::formats::json_object::{Object, write_object};

/// Writes a line of a type: its members, each as `key: value`, or as `key? value` where it is left out if there is none.
macro_rules! line {
    ($lines:ident, $type:literal, $($key:ident $mark:tt $value:expr),* $(,)?) => {{
        let mut buffer = std::mem::take(&mut $lines.buffer);
        buffer.clear();
        write_object(&mut buffer, |line| {
            line.word(b"type", $type);
            $(member!(line, $key $mark $value);)*
        });
        $lines.buffer = buffer;
        $lines.end()
    }};
}

macro_rules! member {
    ($line:ident, $key:ident : $value:expr) => {
        $line.value(stringify!($key), &$value)
    };
    ($line:ident, $key:ident ? $value:expr) => {
        if let Some(value) = $value {
            $line.value(stringify!($key), &value);
        }
    };
}

/// A metric of a GPU's counters.
#[derive(Serialize)]
struct CounterValue {
    metric: &'static str,
    value: f64,
    unit: CounterUnit,
}

/// The last line.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Last<'a> {
    Ledger(&'a Ledger),
}

/// Writes each event that the view shows. Mappings, symbols and name tables are not written: they are resolved.
pub fn write(profile: &Profile, view: View, events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut lines = Lines {
        profile,
        out,
        buffer: Vec::new(),
        stacks: HashMap::new(),
        own: HashSet::new(),
        kernels: SessionKernels::new(profile),
        causes: (profile.ledger.graph_operations > 0).then(Causes::default),
        trace: profile.is_trace().then(|| TraceLines::new(profile, view.calls)),
    };
    for event in events {
        lines.event(view, &event)?;
    }
    lines.finish()?;
    let left_out = lines.trace.as_ref().map_or(0, |trace| trace.left_out);
    if let Some(text) = view.calls.note(Some(left_out)) {
        line!(lines, "note", text: text)?;
    }
    lines.line(&Last::Ledger(&profile.ledger))?;
    lines.out.flush()
}

struct Lines<'a> {
    profile: &'a Profile,
    out: &'a mut dyn Write,
    /// The line being written: each line is one write.
    buffer: Vec<u8>,
    stacks: HashMap<StackId, u64>,
    /// Of these, those in warpscope's own code.
    own: HashSet<StackId>,
    kernels: SessionKernels<'a>,
    /// What caused the work of graphs, if there is any.
    causes: Option<Causes>,
    trace: Option<TraceLines<'a>>,
}

impl Lines<'_> {
    /// Writes one of the frequent lines.
    fn object(&mut self, members: impl FnOnce(&mut Object<'_>)) -> io::Result<()> {
        self.buffer.clear();
        write_object(&mut self.buffer, members);
        self.end()
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, line)?;
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.buffer.push(b'\n');
        self.out.write_all(&self.buffer)
    }

    /// Writes the lines that waited for other events.
    fn finish(&mut self) -> io::Result<()> {
        if let Some(mut causes) = self.causes.take() {
            let mut result = Ok(());
            causes.finish(|cause| {
                if result.is_ok() {
                    result = self.cause(cause);
                }
            });
            result?;
        }
        let Some(trace) = &mut self.trace else { return Ok(()) };
        self.buffer.clear();
        trace.finish(&self.kernels, &mut self.buffer)?;
        self.out.write_all(&self.buffer)
    }

    /// Writes the work of graphs that this event settles.
    fn settle(&mut self, event: &Event) -> io::Result<()> {
        let Some(mut causes) = self.causes.take() else { return Ok(()) };
        let mut result = Ok(());
        let on = |cause: Cause<'_>| {
            if result.is_ok() {
                result = self.cause(cause);
            }
        };
        match event {
            Event::Launch(launch) => causes.launch(launch, on),
            Event::Activity(activity) => causes.activity(activity, on),
            other => causes.note(other),
        }
        self.causes = Some(causes);
        result
    }

    fn cause(&mut self, cause: Cause<'_>) -> io::Result<()> {
        match cause {
            Cause::Ran(Joined { activity, capture, .. }) if activity.graph_node != 0 => {
                let capture = capture.map(|stack| self.stack(stack)).transpose()?;
                self.activity(activity, capture)
            }
            // Other work is written when it arrives.
            _ => Ok(()),
        }
    }

    fn event(&mut self, view: View, event: &Event) -> io::Result<()> {
        if let Some(trace) = &mut self.trace {
            self.buffer.clear();
            trace.event(event, &self.kernels, &mut self.buffer)?;
            self.out.write_all(&self.buffer)?;
            // A launch is covered by the line of the call that made it.
            if matches!(event, Event::Activity(_) | Event::Launch(_)) {
                return Ok(());
            }
        }
        match event {
            Event::Start(e) => {
                let filters = self.profile.filters().iter().cloned().chain(view.calls.filter());
                self.line(&StartLine::new(e, filters.collect()))
            }
            Event::Process(e) => {
                let origin = match e.origin {
                    Origin::Found => "found",
                    Origin::Fork => "fork",
                    Origin::Exec => "exec",
                };
                line!(self, "process", ts_ns: e.time, pid: e.pid, process: e.id, parent: e.parent, origin: origin, comm: e.comm)
            }
            Event::Thread(e) => {
                line!(self, "thread", pid: self.pid(e.process), tid: e.tid, process: e.process, comm: e.comm)
            }
            Event::Exit(e) => {
                line!(self, "exit", ts_ns: e.time, pid: self.pid(e.process), process: e.process)
            }
            Event::Sample(e) if view.cpu => {
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                // It is in warpscope's own code: no graph or total contains it.
                let own = self.own.contains(&e.stack).then_some(true);
                line!(self, "sample", ts_ns: e.time, pid: pid, tid: e.tid, cpu: e.cpu, stack: stack, weight_ns: e.weight, own? own)
            }
            Event::Session(e) => {
                line!(self, "session", session: e.id, pid: self.pid(e.process), process: e.process, cupti: e.cupti, driver: e.driver)
            }
            Event::RangeName(_) | Event::RangedLaunch(_) | Event::LimitTotals(_) => Ok(()),
            Event::Range(e) => {
                let ranges = &self.profile.ranges;
                let number = ranges.number(e.session, e.path);
                line!(
                    self, "range", ts_ns: e.start, dur_ns: e.end.saturating_sub(e.start), pid: self.session_pid(e.session),
                    tid: e.tid, session: e.session, path: ranges.path(number), category? given(ranges.category(number)), mark: e.mark,
                )
            }
            Event::Communicator(e) => {
                line!(
                    self, "communicator", session: e.session, pid: self.session_pid(e.session),
                    communicator: hexadecimal(e.id), parent? (e.parent != 0).then(|| hexadecimal(e.parent)), members: e.size, member: e.rank,
                )
            }
            Event::CommunicatorCall(e) => {
                line!(
                    self, "communicator_call", ts_ns: e.time, pid: self.session_pid(e.session), tid: e.tid, session: e.session,
                    communicator: hexadecimal(e.communicator), operation: e.operation.name(), number: e.number, bytes: e.bytes,
                    peer? (e.peer != NO_PEER).then_some(e.peer),
                )
            }
            Event::Rank(e) => {
                let process = self.profile.sessions.get(&e.session).map_or(ProcessId(0), |session| session.process);
                line!(
                    self, "rank", session: e.session, pid: self.session_pid(e.session), process: process, rank? e.rank,
                    local_rank? e.local, variable? given(&e.variable), mps: e.mps,
                )
            }
            Event::Device(e) => {
                let device = self.profile.device(e.session, e.index);
                let info = self.profile.devices.get(&device);
                let (uuid, gpu_uuid) = info.map_or(("", ""), |info| (&info.uuid, &info.gpu_uuid));
                // The index is the session's own number.
                line!(
                    self, "device", session: e.session, device: device, uuid? given(uuid), gpu_uuid? given(gpu_uuid),
                    index: e.index, name: e.name,
                )
            }
            Event::KernelName(e) => {
                self.kernels.learn(e);
                Ok(())
            }
            Event::Launch(e) if view.gpu => {
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                self.object(|line| {
                    line.word(b"type", "launch");
                    line.number(b"ts_ns", e.time);
                    line.number(b"pid", pid);
                    line.number(b"tid", e.tid);
                    line.number(b"cpu", e.cpu);
                    line.number(b"session", e.session.0);
                    line.number(b"correlation", e.correlation);
                    line.word(b"kind", e.kind.text());
                    line.number(b"stack", stack);
                })?;
                self.settle(event)
            }
            Event::Returned(e) if view.gpu => self.object(|line| {
                line.word(b"type", "returned");
                line.number(b"session", e.session.0);
                line.number(b"correlation", e.correlation);
                line.number(b"dur_ns", e.took);
            }),
            Event::Failed(e) if view.gpu => {
                self.settle(event)?;
                line!(self, "failed", session: e.session, correlation: e.correlation, code: e.code)
            }
            Event::Empty(e) if view.gpu => {
                self.settle(event)?;
                line!(self, "empty", session: e.session, correlation: e.correlation)
            }
            Event::Captured(e) if view.gpu => {
                self.settle(event)?;
                line!(self, "captured", session: e.session, correlation: e.correlation)
            }
            Event::Activity(e) if view.gpu && e.graph_node == 0 => {
                self.settle(event)?;
                self.activity(e, None)
            }
            Event::Activity(_) if view.gpu => self.settle(event),
            Event::NodeCreated(_) | Event::NodeStack(_) | Event::NodeCopied(_) | Event::GraphDestroyed(_) => {
                self.settle(event)
            }
            Event::Sync(e) if view.gpu => {
                line!(
                    self, "sync", ts_ns: e.start, dur_ns: e.end.saturating_sub(e.start), pid: self.session_pid(e.session),
                    session: e.session, correlation: e.correlation, kind: names::sync(e.kind), context: e.context,
                    stream? (e.stream != u32::MAX).then_some(e.stream),
                )
            }
            Event::Wait(e) => {
                let reason = waits::reason_of(self.profile, e.reason, Some(e.stack));
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                let dur_ns = e.end.saturating_sub(e.start);
                line!(self, "wait", ts_ns: e.start, dur_ns: dur_ns, pid: pid, tid: e.tid, reason: reason, stack: stack)
            }
            Event::Tensor(e) => {
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                line!(
                    self, "tensor", ts_ns: e.time, pid: pid, tid: e.tid, device: e.device, address: e.address, bytes: e.bytes,
                    stack: stack,
                )
            }
            Event::TensorFreed(e) => {
                line!(self, "tensorfreed", ts_ns: e.time, pid: self.pid(e.process), tid: e.tid, address: e.address)
            }
            Event::StallSamples(e) if view.gpu => {
                let stalls = &self.profile.stalls;
                // The launch is known if kernels were serialised; lines are outermost first.
                let launch = (e.correlation != 0).then_some(e.correlation);
                let lines = stalls.lines.get(&e.at).map(|lines| lines.iter().map(stalls::line).collect::<Vec<_>>());
                let instruction = stalls.code.get(&e.at).map(|text| &**text);
                line!(
                    self, "stallsamples", pid: self.session_pid(e.at.session), session: e.at.session, correlation? launch,
                    function: self.kernels.name(e.at.session, e.at.function), offset: e.at.offset,
                    lines? lines.filter(|lines| !lines.is_empty()), instruction? instruction,
                    reason: stalls.reason(e.at.session, e.reason), count: e.count,
                )
            }
            // An announcement has no value.
            Event::KernelCounter(e) if view.gpu && e.metric != model::limits::ANNOUNCED => {
                let name = model::limits::METRICS.get(e.metric as usize).copied().unwrap_or("unknown");
                line!(
                    self, "kernelcounter", pid: self.session_pid(e.session), session: e.session, correlation: e.correlation,
                    metric: name, value: f64::from_bits(e.value),
                )
            }
            Event::KernelCounter(_) => Ok(()),
            Event::StallReason(_) | Event::StallSamples(_) | Event::StallLines(_) | Event::SourceText(_) => Ok(()),
            Event::StallTotals(_) | Event::InstructionText(_) => Ok(()),
            Event::Energy(e) if view.gpu => {
                line!(self, "energy", ts_ns: e.time, gpu: format!("GPU-{}", e.gpu), millijoules: e.millijoules)
            }
            Event::Energy(_) => Ok(()),
            Event::Gpm(e) if view.gpu => {
                let (gpu, values) = (format!("GPU-{}", e.gpu), counter_values(Source::Gpm, e.readings()));
                line!(self, "gpm", ts_ns: e.start, dur_ns: e.end.saturating_sub(e.start), gpu: gpu, values: values)
            }
            Event::PmSamples(e) if view.gpu => {
                let gpu = format!("GPU-{}", e.gpu);
                for (start, end, readings) in e.readings() {
                    let values = counter_values(Source::Pm, readings);
                    line!(self, "pm", ts_ns: start, dur_ns: end.saturating_sub(start), gpu: gpu, values: values)?;
                }
                Ok(())
            }
            Event::Gpm(_) | Event::PmSamples(_) => Ok(()),
            Event::Pause(e) if e.to == u64::MAX => Ok(()),
            Event::Pause(e) => {
                let dur_ns = e.to.saturating_sub(e.from);
                line!(self, "pause", ts_ns: e.from, dur_ns: dur_ns, pid: self.session_pid(e.session), client: e.client)
            }
            Event::Loss(e) => line!(self, "loss", cause: e.cause, count: e.count),
            Event::Dump(e) => line!(
                self, "dump", ts_ns: e.time, from_ns: e.from, reason: e.reason, text: e.text, window_ns: e.window_ns,
                discarded: e.discarded, full: e.full,
            ),
            Event::Note(e) => line!(self, "note", text: e.text),
            Event::End(e) => line!(self, "end", ts_ns: e.time, status: e.status),
            Event::Counter(e) => {
                line!(self, "event", event: e.name, source: e.source, weight? given(&e.weight), unit: e.unit)
            }
            Event::CounterPoint(_) => Ok(()),
            Event::Hits(e) => {
                let counters = &self.profile.counters;
                let Some(point) = counters.points.get(&e.point).filter(|_| !self.profile.is_injected(e.stack)) else {
                    return Ok(());
                };
                let Some(counter) = counters.all.get(&point.counter) else { return Ok(()) };
                let function = match waits::is_off_cpu(counter) {
                    true => waits::reason_of(self.profile, e.point, Some(e.stack)),
                    false => &point.function,
                };
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                let weight = (!counter.weight.is_empty()).then_some(e.weight);
                line!(
                    self, "hits", event: counter.name, function? given(function), pid: pid, stack: stack, count: e.count,
                    weight? weight,
                )
            }
            Event::Shutdown(e) => {
                line!(self, "shutdown", ts_ns: e.time, pid: self.pid(e.process))
            }
            Event::HeldMemory(e) => {
                line!(
                    self, "heldmemory", ts_ns: e.time, pid: self.pid(e.process), device: e.device, peak_ts_ns: e.peak_time,
                    most_tensor_bytes: e.most_tensor_bytes, most_held_bytes: e.most_held_bytes,
                )
            }
            Event::MemoryHolder(e) => {
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                line!(
                    self, "memoryholder", pid: pid, device: e.device, use: e.what.name(), bytes: e.bytes, count: e.count,
                    peak_bytes: e.peak_bytes, peak_count: e.peak_count, stack: stack,
                )
            }
            // Hidden by the view, or resolved: a session's totals are in the ledger.
            Event::Sample(_) | Event::Launch(_) | Event::Failed(_) | Event::Captured(_) | Event::Empty(_) => Ok(()),
            Event::Activity(_) | Event::Sync(_) | Event::Returned(_) => Ok(()),
            Event::Mapping(_) | Event::Stack(_) | Event::Symbol(_) | Event::Totals(_) => Ok(()),
            // Written above, or summed up in the summary.
            Event::Function(_) | Event::Call(_) | Event::Switch(_) => Ok(()),
            Event::Sum(_) | Event::ErrorSum(_) | Event::MemorySum(_) | Event::KernelSum(_) => Ok(()),
            Event::SessionCost(_) | Event::OwnCost(_) | Event::ProgramCost(_) => Ok(()),
            Event::Counted(_) | Event::Sampling(_) => Ok(()),
        }
    }

    fn activity(&mut self, e: &Activity, capture: Option<u64>) -> io::Result<()> {
        let (pid, device) = (self.session_pid(e.session), self.profile.device(e.session, e.device));
        self.buffer.clear();
        write_object(&mut self.buffer, |line| {
            let kind = match e.work {
                Work::Kernel { .. } => "kernel",
                Work::Copy { .. } => "copy",
                Work::Memset { .. } => "memset",
            };
            line.word(b"type", kind);
            // A lost time is 0.
            line.number(b"ts_ns", e.start);
            line.number(b"dur_ns", e.duration());
            line.number(b"pid", pid);
            line.number(b"session", e.session.0);
            line.number(b"correlation", e.correlation);
            line.number(b"device", device);
            line.number(b"context", e.context);
            line.number(b"stream", e.stream);
            if e.graph != 0 {
                line.number(b"graph", e.graph);
            }
            if e.graph_node != 0 {
                line.number(b"graph_node", e.graph_node);
            }
            // The stack that created the node.
            if let Some(capture) = capture {
                line.number(b"capture", capture);
            }
            match e.work {
                Work::Kernel { name, grid, block, registers, shared_memory } => {
                    line.text(b"name", self.kernels.name(e.session, name));
                    line.numbers(b"grid", grid);
                    line.numbers(b"block", block);
                    line.number(b"registers", registers);
                    line.number(b"shared_memory", shared_memory);
                }
                Work::Copy { direction, bytes, peer, .. } => {
                    line.word(b"direction", direction.text());
                    line.number(b"bytes", bytes);
                    if let Some(peer) = peer {
                        line.number(b"peer", self.profile.device(e.session, peer));
                    }
                }
                Work::Memset { bytes, value, .. } => {
                    line.number(b"bytes", bytes);
                    line.number(b"value", value);
                }
            }
        });
        self.end()
    }

    /// Returns this file's number of a stack, and writes the stack's line if it is new.
    fn stack(&mut self, id: StackId) -> io::Result<u64> {
        if let Some(&number) = self.stacks.get(&id) {
            return Ok(number);
        }
        let number = self.stacks.len() as u64 + 1;
        self.stacks.insert(id, number);
        if self.profile.is_own_cost(id) {
            self.own.insert(id);
        }
        let frames: Vec<String> = self.profile.frames(id).iter().map(names::raw_frame).collect();
        line!(self, "stack", stack: number, frames: frames)?;
        Ok(number)
    }

    fn pid(&self, process: ProcessId) -> u32 {
        self.profile.processes.get(&process).map_or(0, |p| p.pid)
    }

    fn session_pid(&self, session: SessionId) -> u32 {
        self.profile.sessions.get(&session).map_or(0, |s| self.pid(s.process))
    }
}

/// Returns the number of a communicator.
fn hexadecimal(number: u64) -> String {
    format!("{number:016x}")
}

/// Returns a text that is not empty.
fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Returns the known metrics among these.
fn counter_values(source: Source, readings: impl Iterator<Item = (u32, f64)>) -> Vec<CounterValue> {
    let value = |(number, value)| source.metric(number).map(|(metric, unit)| CounterValue { metric, value, unit });
    readings.filter_map(value).collect()
}
