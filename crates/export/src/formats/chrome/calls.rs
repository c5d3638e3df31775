//! Calls on the timeline: slices on their thread, nested like the calls. Off-CPU intervals cross call boundaries, so
//! they have a separate track beside each thread.

use std::io;

use analysis::names::{OFF_CPU, library, off_cpu};
use model::event::{Call, Layer, Switch};

use super::{Entry, Trace};

impl Trace<'_> {
    /// A call that never returned is a slice without an end, which lasts to the end of the timeline.
    pub(super) fn call(&mut self, call: &Call) -> io::Result<()> {
        let Some(reading) = self.reader.read(call) else { return Ok(()) };
        let track = self.tracks.thread(self.profile, call.process, call.tid);
        let (category, phase) = match (reading.function.layer, call.end) {
            (Layer::Point, _) => ("tracepoint", "i"),
            (Layer::Library, 0) => ("call", "B"),
            (Layer::Library, _) => ("call", "X"),
            (Layer::Driver, 0) => ("driver", "B"),
            (Layer::Driver, _) => ("driver", "X"),
            (Layer::Kernel, 0) => ("kernel function", "B"),
            (Layer::Kernel, _) => ("kernel function", "X"),
        };
        let ts = self.at(call.start);
        let mut slice = Entry::new(phase, &reading.function.name, category, track, ts);
        slice.dur = call.duration().filter(|_| phase == "X");
        slice.s = (phase == "i").then_some("t");
        if let Some((session, correlation)) = call.launch.filter(|_| call.launches) {
            slice.launches(session, correlation);
        }
        slice.sf = call.stack.map(|stack| self.stacks.get(stack));
        self.json.event(|event| {
            slice.write(event);
            event.object(b"args", |args| {
                // A separate object, because an argument may have any name.
                args.value("arguments", &reading.args);
                if let Some(result) = &reading.result {
                    args.value("ret", result);
                }
                if reading.failed {
                    args.flag(b"error");
                }
                if let Some((session, correlation)) = call.launch {
                    args.number(b"correlation", correlation);
                    args.number(b"session", session.0);
                }
                args.text(b"library", library(reading.function));
                args.number(b"cpu", call.cpu);
            });
        })
    }

    pub(super) fn switch(&mut self, switch: &Switch) -> io::Result<()> {
        let track = self.tracks.switches(self.profile, switch.process, switch.tid);
        let mut slice = Entry::new("X", OFF_CPU, "scheduler", track, self.at(switch.start));
        slice.dur = Some(switch.end.saturating_sub(switch.start));
        slice.sf = switch.stack.map(|stack| self.stacks.get(stack));
        self.json.event(|event| {
            slice.write(event);
            event.object(b"args", |args| {
                args.word(b"state", off_cpu(switch));
                args.number(b"cpu", switch.cpu);
            });
        })
    }
}
