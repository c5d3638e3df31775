//! Traced calls, off-CPU intervals and NVTX ranges on the timeline.

use std::io;

use analysis::names::{OFF_CPU, library, off_cpu};
use analysis::waits;
use model::event::{Call, Layer, ProcessId, Range, StackId, Switch, Wait};

use super::{Point, Trace, Track, annotation};
use crate::lanes::LANES;

impl Trace<'_> {
    /// Writes a call with its true length. One that never returned lasts to the end of the trace.
    pub(super) fn call(&mut self, call: &Call) -> io::Result<()> {
        let track = self.track(Track::Thread(call.process, call.tid))?;
        let Some(reading) = self.reader.read(call) else { return Ok(()) };
        let name = self.interned.name(&reading.function.name);
        let arguments = serde_json::to_string(&reading.args)?;
        let result = reading.result.as_ref().map(serde_json::to_string).transpose()?;
        let library = (self.interned.argument("library"), self.interned.value(library(reading.function)));
        let stack = call.stack.filter(|stack| *stack != StackId(0)).map(|stack| self.interned.stack(stack));
        let (instant, failed) = (reading.function.layer == Layer::Point, reading.failed);
        let point = Point { time: call.start, track, name };
        let details = |event: &mut crate::formats::proto::Message| {
            event.message(4, |annotation| {
                annotation.number(1, library.0);
                annotation.number(17, library.1);
            });
            annotation(event, "arguments", |value| value.text(9, &arguments));
            if let Some(result) = &result {
                annotation(event, "ret", |value| value.text(9, result));
            }
            if failed {
                annotation(event, "error", |value| value.number(2, 1));
            }
            if let Some(stack) = stack {
                event.number(56, stack);
            }
        };
        if instant {
            return self.packets.instant(&mut self.interned, point, details);
        }
        let end = call.duration().map(|duration| call.start.saturating_add(duration));
        self.packets.slice(&mut self.interned, point, end, details)
    }

    pub(super) fn switch(&mut self, switch: &Switch) -> io::Result<()> {
        let track = self.track(Track::OffCpu(switch.process, switch.tid))?;
        let name = self.interned.name(OFF_CPU);
        let state = (self.interned.argument("state"), self.interned.value(off_cpu(switch)));
        let stack = switch.stack.map(|stack| self.interned.stack(stack));
        let point = Point { time: switch.start, track, name };
        self.packets.slice(&mut self.interned, point, Some(switch.end.max(switch.start)), |event| {
            event.message(4, |annotation| {
                annotation.number(1, state.0);
                annotation.number(17, state.1);
            });
            if let Some(stack) = stack {
                event.number(56, stack);
            }
        })
    }

    /// Writes a wait of a thread that launches GPU work.
    pub(super) fn wait(&mut self, wait: &Wait) -> io::Result<()> {
        let track = self.track(Track::OffCpu(wait.process, wait.tid))?;
        let name = self.interned.name(waits::reason_of(self.profile, wait.reason, Some(wait.stack)));
        let stack = self.interned.stack(wait.stack);
        let point = Point { time: wait.start, track, name };
        let end = Some(wait.end.max(wait.start));
        self.packets.slice(&mut self.interned, point, end, |event| event.number(56, stack))
    }

    /// Writes an NVTX range or mark. Ranges that a program starts and ends in any order may overlap.
    pub(super) fn range(&mut self, range: &Range) -> io::Result<()> {
        let process = self.profile.sessions.get(&range.session).map_or(ProcessId(0), |session| session.process);
        let ranges = &self.profile.ranges;
        let mut path = ranges.path(ranges.number(range.session, range.path));
        let depth = path.len() as u32 * LANES;
        let name = self.interned.name(path.pop().unwrap_or("[unknown]"));
        let end = range.end.max(range.start);
        let track = self.lane(Track::Ranges(process, range.tid, depth), range.start, end)?;
        let point = Point { time: range.start, track, name };
        if range.mark {
            return self.packets.instant(&mut self.interned, point, |_| {});
        }
        self.packets.slice(&mut self.interned, point, Some(end), |_| {})
    }
}
