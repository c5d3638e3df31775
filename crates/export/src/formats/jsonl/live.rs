//! Lines of a trace while it runs: those of the file, with the fields that are known when a call returns. They have no
//! numbers, stacks and memory.

use std::io::{self, Write};

use analysis::trace::live::{Live, Shown};
use model::event::Event;
use serde::Serialize;

use super::{
    call_line::{self, Line},
    start_line::StartLine,
};

/// Writes lines as events arrive.
#[derive(Debug)]
pub struct LiveLines {
    live: Live,
    start: u64,
}

impl LiveLines {
    /// Writes what `live` shows, with times since `start`.
    pub fn new(live: Live, start: u64) -> Self {
        Self { live, start }
    }

    /// Adds the next event, and writes its line if it has one.
    pub fn push(&mut self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        self.live.learn(event);
        let (live, start) = (&self.live, self.start);
        let Some(shown) = live.shown(event) else { return Ok(()) };
        match shown {
            // The other lines have times since then.
            Shown::Start(start) => {
                let mut text = serde_json::to_vec(&StartLine::new(start, live.view().filter().into_iter().collect()))?;
                text.push(b'\n');
                out.write_all(&text)
            }
            Shown::Call(call, reading) => {
                self.write(Line { pid: live.pid(call.process), ..Line::call(start, call, reading) }, out)
            }
            Shown::Switch(switch) => {
                self.write(Line { pid: live.pid(switch.process), ..Line::switch(start, switch) }, out)
            }
            Shown::Launch(launch, name) => {
                self.write(Line { pid: live.pid(launch.process), ..Line::launch(start, launch, name) }, out)
            }
            Shown::Work(activity, name, device) => {
                let pid = live.pid_of_session(activity.session);
                self.write(Line { pid, ..Line::gpu(start, activity, name, device) }, out)
            }
        }
    }

    fn write<A: Serialize>(&self, line: Line<'_, A>, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Vec::new();
        call_line::write(line, self.live.view(), &mut text)?;
        out.write_all(&text)
    }
}
