//! Runs the view on a real terminal.

use std::{
    io,
    time::{Duration, Instant},
};

use ratatui::crossterm::event::{self, Event};

use super::{App, Column, Flow};
use crate::snapshot::Snapshot;

/// Records processes in the background.
pub trait Recorder {
    /// Begins to record a process; returns a message.
    fn start(&mut self, pid: u32) -> String;

    /// Returns a message once a recording has ended.
    fn ended(&mut self) -> Option<String>;
}

/// Shows the snapshots from `gather`, one each `interval`, until the user quits. The terminal is restored afterwards,
/// even after a panic or an error.
pub fn run(
    gather: &mut dyn FnMut() -> Result<Snapshot, String>,
    recorder: &mut dyn Recorder,
    interval: Duration,
    columns: &[Column],
) -> Result<(), String> {
    let mut app = App::new(columns);
    app.update(gather()?);
    let mut terminal = ratatui::try_init().map_err(|error| format!("cannot draw on this terminal: {error}"))?;
    let outcome = show(&mut app, &mut terminal, gather, recorder, interval);
    ratatui::restore();
    outcome
}

fn show(
    app: &mut App,
    terminal: &mut ratatui::DefaultTerminal,
    gather: &mut dyn FnMut() -> Result<Snapshot, String>,
    recorder: &mut dyn Recorder,
    interval: Duration,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot draw on the terminal: {error}");
    let mut next = Instant::now() + interval;
    loop {
        if let Some(message) = recorder.ended() {
            app.say(message);
        }
        terminal.draw(|frame| app.draw(frame)).map_err(failed)?;
        // A resized terminal is also redrawn.
        if event::poll(next.saturating_duration_since(Instant::now())).map_err(failed)?
            && let Event::Key(key) = event::read().map_err(failed)?
        {
            match app.key(key) {
                Flow::Continue => {}
                Flow::Record(pid) => app.say(recorder.start(pid)),
                Flow::Quit => return Ok(()),
            }
        }
        if Instant::now() >= next {
            app.update(gather()?);
            next = Instant::now() + interval;
        }
    }
}
