//! Calls on the timeline: slices on their thread, nested like the calls. Off-CPU intervals cross call boundaries, so
//! they have a separate track beside each thread.

use std::io;

use model::event::{Call, Layer, SessionId, Switch};
use serde::Serialize;

use super::{Entry, Trace, micros};
use crate::trace::{
    json_line::library,
    labels::{OFF_CPU, off_cpu},
    values::{Arguments, Outcome},
};

#[derive(Serialize)]
struct CallArgs<'a> {
    /// A separate object, because an argument may have any name.
    arguments: Arguments,
    #[serde(skip_serializing_if = "Option::is_none")]
    ret: Option<Outcome>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    library: &'a str,
    cpu: u32,
}

#[derive(Serialize)]
struct SwitchArgs {
    state: &'static str,
    cpu: u32,
}

impl Trace<'_> {
    /// A call that never returned is a slice without an end, which lasts to the end of the timeline.
    pub(super) fn call(&mut self, call: &Call) -> io::Result<()> {
        let Some(reading) = self.reader.read(call) else { return Ok(()) };
        let track = self.tracks.thread(self.profile, call.process, call.tid);
        let (category, phase) = match (reading.function.layer, call.end) {
            (Layer::Point, _) => ("tracepoint", 'i'),
            (Layer::Library, 0) => ("call", 'B'),
            (Layer::Library, _) => ("call", 'X'),
            (Layer::Driver, 0) => ("driver", 'B'),
            (Layer::Driver, _) => ("driver", 'X'),
            (Layer::Kernel, 0) => ("kernel function", 'B'),
            (Layer::Kernel, _) => ("kernel function", 'X'),
        };
        let ts = super::relative(call.start, self.origin);
        let mut slice = Entry::new(phase, &reading.function.name, category, track, ts);
        slice.dur = call.duration().filter(|_| phase == 'X').map(micros);
        slice.s = (phase == 'i').then_some('t');
        slice.args = Some(CallArgs {
            arguments: reading.args,
            ret: reading.result,
            error: reading.failed,
            correlation: call.launch.map(|(_, correlation)| correlation),
            session: call.launch.map(|(session, _)| session),
            library: library(reading.function),
            cpu: call.cpu,
        });
        slice.sf = call.stack.map(|stack| self.stacks.get(stack));
        self.json.event(&slice)
    }

    pub(super) fn switch(&mut self, switch: &Switch) -> io::Result<()> {
        let track = self.tracks.switches(self.profile, switch.process, switch.tid);
        let mut slice = Entry::new('X', OFF_CPU, "scheduler", track, self.at(switch.start));
        slice.dur = Some(micros(switch.end.saturating_sub(switch.start)));
        slice.args = Some(SwitchArgs { state: off_cpu(switch), cpu: switch.cpu });
        slice.sf = switch.stack.map(|stack| self.stacks.get(stack));
        self.json.event(&slice)
    }
}
