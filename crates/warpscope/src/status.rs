//! The status line while running processes are recorded. A command that warpscope starts writes to the same terminal, where
//! the two would mix, so there is none for it.

use std::{
    collections::HashMap,
    io::{self, Write},
    time::{Duration, Instant},
};

use collect::sink::Printer;
use model::{
    event::{Event, SessionId, Uuid},
    fold::BusyTime,
};
use text::units::{count, counted, percent};

use crate::terminal::Style;

/// The time between two updates.
const INTERVAL: Duration = Duration::from_millis(500);

/// What the line says.
pub struct Status {
    style: Style,
    start: Instant,
    drawn: Option<Instant>,
    samples: u64,
    launches: u64,
    lost: u64,
    devices: HashMap<(SessionId, u32), Uuid>,
    busy: HashMap<Result<Uuid, u32>, BusyTime>,
}

impl Status {
    /// Creates the line, if stderr is a terminal on which a line can be replaced.
    pub fn new() -> Option<Self> {
        let style = Style::of(&io::stderr());
        style.redraws.then(|| Self {
            style,
            start: Instant::now(),
            drawn: None,
            samples: 0,
            launches: 0,
            lost: 0,
            devices: HashMap::new(),
            busy: HashMap::new(),
        })
    }

    fn line(&mut self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs();
        let mut parts = vec![format!("recording {}:{:02}", seconds / 60, seconds % 60)];
        if self.samples > 0 {
            parts.push(counted(self.samples, "CPU sample", "CPU samples"));
        }
        parts.push(counted(self.launches, "launch", "launches"));
        if !self.busy.is_empty() {
            let whole = (elapsed.as_nanos() as u64).saturating_mul(self.busy.len() as u64);
            let busy: u64 = self.busy.values_mut().map(BusyTime::total).sum();
            parts.push(format!("GPU busy {}", percent(busy.min(whole), whole)));
        }
        if self.lost > 0 {
            parts.push(format!("{} lost", count(self.lost)));
        }
        parts.push("Ctrl-C ends it".to_owned());
        self.style.text(&parts.join(", ")).chars().take(self.style.width.saturating_sub(1)).collect()
    }
}

impl Printer for Status {
    fn print(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Launch(_) => self.launches += 1,
            Event::Sample(_) => self.samples += 1,
            Event::Loss(loss) => self.lost = self.lost.saturating_add(loss.count),
            Event::Device(device) if device.identity.uuid.is_known() => {
                self.devices.insert((device.session, device.index), device.identity.uuid);
            }
            Event::Activity(activity) if activity.start > 0 => {
                let device = self.devices.get(&(activity.session, activity.device)).copied();
                let busy = self.busy.entry(device.ok_or(activity.device)).or_default();
                busy.add(activity.start, activity.end.max(activity.start));
            }
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.drawn.is_some_and(|drawn| now - drawn < INTERVAL) {
            return Ok(());
        }
        self.drawn = Some(now);
        let line = self.line(now - self.start);
        write!(io::stderr().lock(), "\r\x1b[K{line}")
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}
