//! Runs the view on a real terminal. It has its own thread, and requests snapshots as a scrape does.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use collect::command::signals::Signals;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEvent},
};

use super::{App, Column, Flow, recorder::Recorder};
use crate::{
    config::Options,
    serve::Scrapes,
    snapshot::Snapshot,
    watch::{Monitor, check, health},
};

/// Shows a snapshot each `interval` until the user quits. The key `r` records for so many `seconds`.
pub fn run(options: Options, interval: Duration, seconds: f64, columns: &[Column]) -> anyhow::Result<()> {
    check(&options)?;
    health::limit_heaps();
    let signals = Signals::take().context("cannot set up signal handling")?;
    let scrapes = Arc::new(Scrapes::new(options.limits).context("cannot create snapshots")?);
    scrapes.keep_ended();
    let mut monitor = Monitor::start(options, signals, scrapes.clone())?;
    let view = View { app: App::new(columns), scrapes: scrapes.clone(), recorder: Recorder::new(seconds), interval };
    let view = thread::Builder::new().name("top".into()).spawn(move || view.run());
    let view = view.context("cannot start the thread for the terminal")?;
    monitor.watch();
    // The view ends at its next request and restores the terminal.
    let closed_by_us = scrapes.close();
    match view.join() {
        Ok(Err(error)) if !closed_by_us => Err(error),
        _ => Ok(()),
    }
}

struct View {
    app: App,
    scrapes: Arc<Scrapes>,
    recorder: Recorder,
    interval: Duration,
}

impl View {
    /// Runs until the user quits. The terminal is restored afterwards, even after a panic or an error.
    fn run(mut self) -> anyhow::Result<()> {
        let ended = self.update().and_then(|()| {
            let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
            let outcome = self.show(&mut terminal);
            ratatui::restore();
            outcome
        });
        self.scrapes.close();
        ended
    }

    fn update(&mut self) -> anyhow::Result<()> {
        let (snapshot, _) = self.scrapes.request().context("the monitor has stopped")?;
        if self.app.is_paused() {
            self.scrapes.observe(&snapshot);
        } else {
            let mut snapshot = Snapshot::clone(&snapshot);
            self.scrapes.add_ended(&mut snapshot);
            self.app.update(snapshot);
        }
        Ok(())
    }

    fn show(&mut self, terminal: &mut DefaultTerminal) -> anyhow::Result<()> {
        let mut next = Instant::now() + self.interval;
        loop {
            if let Some(message) = self.recorder.ended() {
                self.app.say(message);
            }
            let key = draw(&self.app, terminal, next).context("cannot draw on the terminal")?;
            match key.map_or(Flow::Continue, |key| self.app.key(key)) {
                Flow::Continue => {}
                Flow::Record(pid) => self.app.say(self.recorder.start(pid)),
                Flow::Quit => return Ok(()),
            }
            if Instant::now() >= next {
                self.update()?;
                next = Instant::now() + self.interval;
            }
        }
    }
}

/// Draws the view, and waits for a key until the time `next`. A resized terminal is also redrawn.
fn draw(app: &App, terminal: &mut DefaultTerminal, next: Instant) -> io::Result<Option<KeyEvent>> {
    terminal.draw(|frame| app.draw(frame))?;
    if event::poll(next.saturating_duration_since(Instant::now()))?
        && let Event::Key(key) = event::read()?
    {
        return Ok(Some(key));
    }
    Ok(None)
}
