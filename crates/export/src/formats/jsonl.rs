//! `.jsonl`: one JSON object per event, in order of arrival, with names resolved; the last line is the ledger.
//!
//! The work of a graph is written once its launch has arrived, because only then it is certain which stack created it.
//! A stack is written once, before the first line that refers to it, with a number that is local to this file. Trace
//! events have lines of their own kind: `calls`.

mod call_line;
mod calls;
mod launched;
mod line;
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
    event::{Activity, Event, ProcessId, SessionId, StackId, Work},
    gpu_counters::Source,
    profile::Profile,
};
use serde::Serialize;

use self::{
    calls::TraceLines,
    line::{CounterValue, Line, origin},
    start_line::StartLine,
};
pub use self::{
    live::LiveLines,
    read_back::{ReadError, read_back},
};
use crate::formats::json_object::{Object, write_object};

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
        lines.line(&Line::Note { text: &text })?;
    }
    lines.line(&Line::Ledger(&profile.ledger))?;
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
        self.buffer.push(b'\n');
        self.out.write_all(&self.buffer)
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, line)?;
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
            Event::Process(e) => self.line(&Line::Process {
                ts_ns: e.time,
                pid: e.pid,
                process: e.id,
                parent: e.parent,
                origin: origin(e.origin),
                comm: &e.comm,
            }),
            Event::Thread(e) => {
                let pid = self.pid(e.process);
                self.line(&Line::Thread { pid, tid: e.tid, process: e.process, comm: &e.comm })
            }
            Event::Exit(e) => {
                let pid = self.pid(e.process);
                self.line(&Line::Exit { ts_ns: e.time, pid, process: e.process })
            }
            Event::Sample(e) if view.cpu => {
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                let (ts_ns, tid, cpu, weight_ns, own) = (e.time, e.tid, e.cpu, e.weight, self.own.contains(&e.stack));
                self.line(&Line::Sample { ts_ns, pid, tid, cpu, stack, weight_ns, own })
            }
            Event::Session(e) => {
                let pid = self.pid(e.process);
                let (session, process, cupti, driver) = (e.id, e.process, e.cupti, e.driver);
                self.line(&Line::Session { session, pid, process, cupti, driver })
            }
            Event::RangeName(_) | Event::RangedLaunch(_) => Ok(()),
            Event::Range(e) => self.line(&Line::Range {
                ts_ns: e.start,
                dur_ns: e.end.saturating_sub(e.start),
                pid: self.session_pid(e.session),
                tid: e.tid,
                session: e.session,
                path: self.profile.ranges.path(self.profile.ranges.number(e.session, e.path)),
                category: self.profile.ranges.category(self.profile.ranges.number(e.session, e.path)),
                mark: e.mark,
            }),
            Event::Rank(e) => {
                let process = self.profile.sessions.get(&e.session).map_or(ProcessId(0), |session| session.process);
                let (session, pid, mps) = (e.session, self.session_pid(e.session), e.mps);
                let (rank, local_rank, variable) = (e.rank, e.local, e.variable.as_str());
                self.line(&Line::Rank { session, pid, process, rank, local_rank, variable, mps })
            }
            Event::Device(e) => {
                let device = self.profile.device(e.session, e.index);
                let info = self.profile.devices.get(&device);
                let (uuid, gpu_uuid) = info.map_or(("", ""), |info| (&info.uuid, &info.gpu_uuid));
                let (session, index) = (e.session, e.index);
                self.line(&Line::Device { session, device, uuid, gpu_uuid, index, name: &e.name })
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
                self.line(&Line::Failed { session: e.session, correlation: e.correlation, code: e.code })
            }
            Event::Empty(e) if view.gpu => {
                self.settle(event)?;
                self.line(&Line::Empty { session: e.session, correlation: e.correlation })
            }
            Event::Captured(e) if view.gpu => {
                self.settle(event)?;
                self.line(&Line::Captured { session: e.session, correlation: e.correlation })
            }
            Event::Activity(e) if view.gpu && e.graph_node == 0 => {
                self.settle(event)?;
                self.activity(e, None)
            }
            Event::Activity(_) if view.gpu => self.settle(event),
            Event::NodeCreated(_) | Event::NodeStack(_) | Event::NodeCopied(_) | Event::GraphDestroyed(_) => {
                self.settle(event)
            }
            Event::Sync(e) if view.gpu => self.line(&Line::Sync {
                ts_ns: e.start,
                dur_ns: e.end.saturating_sub(e.start),
                pid: self.session_pid(e.session),
                session: e.session,
                correlation: e.correlation,
                kind: names::sync(e.kind),
                context: e.context,
                stream: (e.stream != u32::MAX).then_some(e.stream),
            }),
            Event::Wait(e) => {
                let reason = waits::reason_of(self.profile, e.reason, Some(e.stack));
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                let dur_ns = e.end.saturating_sub(e.start);
                self.line(&Line::Wait { ts_ns: e.start, dur_ns, pid, tid: e.tid, reason, stack })
            }
            Event::Tensor(e) => {
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                let (ts_ns, tid, device, address, bytes) = (e.time, e.tid, e.device, e.address, e.bytes);
                self.line(&Line::Tensor { ts_ns, pid, tid, device, address, bytes, stack })
            }
            Event::TensorFreed(e) => {
                let pid = self.pid(e.process);
                self.line(&Line::TensorFreed { ts_ns: e.time, pid, tid: e.tid, address: e.address })
            }
            Event::StallSamples(e) if view.gpu => {
                let stalls = &self.profile.stalls;
                let function = self.kernels.name(e.at.session, e.at.function).to_owned();
                let (pid, session, offset) = (self.session_pid(e.at.session), e.at.session, e.at.offset);
                let lines = stalls.lines.get(&e.at).map(|lines| lines.iter().map(stalls::line).collect());
                let (lines, reason) = (lines.unwrap_or_default(), stalls.reason(session, e.reason));
                let (function, count, correlation) = (function.as_str(), e.count, e.correlation);
                let instruction = stalls.code.get(&e.at).map(|text| &**text);
                self.line(&Line::StallSamples {
                    pid,
                    session,
                    correlation,
                    function,
                    offset,
                    lines,
                    instruction,
                    reason,
                    count,
                })
            }
            Event::StallReason(_) | Event::StallSamples(_) | Event::StallLines(_) | Event::SourceText(_) => Ok(()),
            Event::StallTotals(_) | Event::InstructionText(_) => Ok(()),
            Event::Energy(e) if view.gpu => {
                let (ts_ns, gpu, millijoules) = (e.time, format!("GPU-{}", e.gpu), e.millijoules);
                self.line(&Line::Energy { ts_ns, gpu, millijoules })
            }
            Event::Energy(_) => Ok(()),
            Event::Gpm(e) if view.gpu => {
                let (ts_ns, dur_ns) = (e.start, e.end.saturating_sub(e.start));
                let values = counter_values(Source::Gpm, e.readings());
                self.line(&Line::Gpm { ts_ns, dur_ns, gpu: format!("GPU-{}", e.gpu), values })
            }
            Event::PmSamples(e) if view.gpu => {
                let gpu = format!("GPU-{}", e.gpu);
                for (ts_ns, end, readings) in e.readings() {
                    let values = counter_values(Source::Pm, readings);
                    self.line(&Line::Pm { ts_ns, dur_ns: end.saturating_sub(ts_ns), gpu: &gpu, values })?;
                }
                Ok(())
            }
            Event::Gpm(_) | Event::PmSamples(_) => Ok(()),
            Event::Pause(e) if e.to == u64::MAX => Ok(()),
            Event::Pause(e) => {
                let pid = self.session_pid(e.session);
                let dur_ns = e.to.saturating_sub(e.from);
                self.line(&Line::Pause { ts_ns: e.from, dur_ns, pid, client: &e.client })
            }
            Event::Loss(e) => self.line(&Line::Loss { cause: e.cause, count: e.count }),
            Event::Dump(e) => self.line(&Line::Dump {
                ts_ns: e.time,
                from_ns: e.from,
                reason: e.reason,
                text: &e.text,
                window_ns: e.window_ns,
                discarded: e.discarded,
                full: e.full,
            }),
            Event::Note(e) => self.line(&Line::Note { text: &e.text }),
            Event::End(e) => self.line(&Line::End { ts_ns: e.time, status: e.status }),
            Event::Counter(e) => {
                let weight = Some(e.weight.as_str()).filter(|weight| !weight.is_empty());
                self.line(&Line::Event { event: &e.name, source: &e.source, weight, unit: e.unit })
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
                let function = Some(function).filter(|function| !function.is_empty());
                let (pid, stack) = (self.pid(e.process), self.stack(e.stack)?);
                let weight = (!counter.weight.is_empty()).then_some(e.weight);
                self.line(&Line::Hits { event: &counter.name, function, pid, stack, count: e.count, weight })
            }
            Event::Shutdown(e) => {
                let pid = self.pid(e.process);
                self.line(&Line::Shutdown { ts_ns: e.time, pid })
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
        self.buffer.push(b'\n');
        self.out.write_all(&self.buffer)
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
        let frames = self.profile.frames(id).iter().map(names::raw_frame).collect();
        self.line(&Line::Stack { stack: number, frames })?;
        Ok(number)
    }

    fn pid(&self, process: ProcessId) -> u32 {
        self.profile.processes.get(&process).map_or(0, |p| p.pid)
    }

    fn session_pid(&self, session: SessionId) -> u32 {
        self.profile.sessions.get(&session).map_or(0, |s| self.pid(s.process))
    }
}

/// Returns the known metrics among these.
fn counter_values(source: Source, readings: impl Iterator<Item = (u32, f64)>) -> Vec<CounterValue> {
    let value = |(number, value)| source.metric(number).map(|(metric, unit)| CounterValue { metric, value, unit });
    readings.filter_map(value).collect()
}
