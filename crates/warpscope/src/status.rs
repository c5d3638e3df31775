//! The status of a recording of running processes. A command that warpscope starts writes to the same terminal, where the two
//! would mix, so there is none for it.
//!
//! A reserved last line (a scroll region) would change the terminal's size for the command, break full-screen programs,
//! and remain if warpscope is killed.

use std::{
    collections::HashMap,
    io,
    time::{Duration, Instant},
};

use collect::sink::Printer;
use model::{
    event::{Event, SessionId, Uuid},
    fold::BusyTime,
};
use text::units::{count, counted, percent};

use crate::status_line;

/// The time between two updates.
const INTERVAL: Duration = Duration::from_millis(500);

/// What the line says.
pub struct Status {
    start: Instant,
    drawn: Option<Instant>,
    samples: u64,
    launches: u64,
    /// Calls, if they are traced.
    calls: Option<u64>,
    lost: u64,
    /// Records that running sessions have dropped.
    dropped: HashMap<SessionId, u64>,
    devices: HashMap<(SessionId, u32), Uuid>,
    busy: HashMap<Result<Uuid, u32>, BusyTime>,
}

impl Status {
    /// Creates the status of a recording, if stderr is a terminal on which a line can be replaced.
    pub fn of_recording() -> Option<Self> {
        status_line::is_possible().then(|| Self::new(None))
    }

    /// The same of a trace.
    pub fn of_trace() -> Option<Self> {
        status_line::is_possible().then(|| Self::new(Some(0)))
    }

    fn new(calls: Option<u64>) -> Self {
        Self {
            start: Instant::now(),
            drawn: None,
            samples: 0,
            launches: 0,
            calls,
            lost: 0,
            dropped: HashMap::new(),
            devices: HashMap::new(),
            busy: HashMap::new(),
        }
    }

    fn add(&mut self, event: &Event) {
        match event {
            Event::Launch(_) => self.launches += 1,
            Event::Sample(_) => self.samples += 1,
            Event::Call(_) => self.calls = self.calls.map(|calls| calls + 1),
            Event::Loss(loss) => self.lost = self.lost.saturating_add(loss.count),
            Event::Totals(totals) => {
                let dropped = [totals.dropped_queue_full, totals.dropped_launches]
                    .into_iter()
                    .fold(totals.dropped_by_cupti, u64::saturating_add);
                if totals.ended {
                    self.lost = self.lost.saturating_add(dropped);
                    self.dropped.remove(&totals.session);
                    self.devices.retain(|(session, _), _| *session != totals.session);
                } else {
                    self.dropped.insert(totals.session, dropped);
                }
            }
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
    }

    /// Returns the parts of the line, and when each is left out.
    fn parts(&mut self, elapsed: Duration) -> Vec<(u8, String)> {
        let what = if self.calls.is_some() { "tracing" } else { "recording" };
        let mut parts = vec![(0, format!("{what} {}", clock(elapsed.as_secs())))];
        if self.samples > 0 {
            parts.push((4, counted(self.samples, "CPU sample", "CPU samples")));
        }
        if let Some(calls) = self.calls {
            parts.push((2, counted(calls, "call", "calls")));
        }
        if self.launches > 0 || self.calls.is_none() {
            parts.push((2, counted(self.launches, "launch", "launches")));
        }
        if !self.busy.is_empty() {
            let whole = (elapsed.as_nanos() as u64).saturating_mul(self.busy.len() as u64);
            let busy: u64 = self.busy.values_mut().map(BusyTime::total).sum();
            parts.push((3, format!("GPU busy {}", percent(busy.min(whole), whole))));
        }
        let lost = self.dropped.values().fold(self.lost, |sum, dropped| sum.saturating_add(*dropped));
        if lost > 0 {
            parts.push((1, format!("{} lost", count(lost))));
        }
        parts.push((5, "Ctrl-C ends it".to_owned()));
        parts
    }
}

/// Formats seconds as on a clock.
fn clock(seconds: u64) -> String {
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

impl Printer for Status {
    fn print(&mut self, event: &Event) -> io::Result<()> {
        self.add(event);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.drawn.is_some_and(|drawn| now - drawn < INTERVAL) {
            return Ok(());
        }
        self.drawn = Some(now);
        status_line::draw(&self.parts(now - self.start))
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        drop(status_line::erase());
    }
}

#[cfg(test)]
mod tests {
    use model::event::{Loss, LossCause, Totals};

    use super::*;

    /// Check that what is lost is counted once: in the kernel, by running sessions and by those that have ended.
    #[test]
    fn losses_are_counted_once() {
        let mut status = Status::new(None);
        let mut line = |event: &Event| {
            status.add(event);
            let parts = status.parts(Duration::from_secs(3725));
            parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            line(&Event::Loss(Loss { cause: LossCause::RingLaunches, count: 2 })),
            "recording 1:02:05, 0 launches, 2 lost, Ctrl-C ends it"
        );
        let totals = |dropped: u64, ended| {
            Event::Totals(Totals {
                session: SessionId(1),
                launches: 0,
                kernels: 0,
                kernel_ns: 0,
                copies: 0,
                memsets: 0,
                syncs: 0,
                dropped_by_cupti: 1,
                dropped_queue_full: dropped - 1,
                invalid: 0,
                nameless: 0,
                buffers_refused: 0,
                dropped_launches: 0,
                ended,
            })
        };
        for (event, lost) in [(totals(3, false), "5 lost"), (totals(4, false), "6 lost"), (totals(4, true), "6 lost")] {
            assert!(line(&event).contains(lost), "{event:?}");
        }
    }
}
