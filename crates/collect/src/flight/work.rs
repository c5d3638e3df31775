//! Launched work that has not run yet, and processes that do not use their GPU.

use std::collections::{BTreeMap, HashMap};

use model::event::{Event, SessionId};

/// How long after the end of some work its record arrives at the latest.
const LATE_NS: u64 = 1_000_000_000;
/// The most launches of a process whose work has not run. Beyond that they are forgotten: the process may seem idle.
const MOST_RUNNING: usize = 1 << 16;

/// What is known of a process.
#[derive(Default)]
struct Use {
    /// When its last work ended; 0 if it has not run any.
    last_end: u64,
    /// Launches whose work has not run, and when they were made.
    running: HashMap<u32, u64>,
    /// The current idle time was reported.
    reported: bool,
    /// Another client uses CUPTI: what runs is not known.
    paused: bool,
}

/// The work of all processes.
#[derive(Default)]
pub struct Work {
    sessions: BTreeMap<SessionId, Use>,
}

impl Work {
    /// Adds an event.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Launch(e) => {
                let known = self.sessions.entry(e.session).or_default();
                if known.running.len() >= MOST_RUNNING {
                    known.running.clear();
                }
                known.running.insert(e.correlation, e.time);
            }
            Event::Activity(e) => {
                let known = self.sessions.entry(e.session).or_default();
                known.running.remove(&e.correlation);
                known.last_end = known.last_end.max(e.end);
                known.reported = false;
            }
            Event::Failed(e) => self.ended(e.session, e.correlation),
            Event::Captured(e) => self.ended(e.session, e.correlation),
            Event::Empty(e) => self.ended(e.session, e.correlation),
            Event::Pause(e) => {
                let known = self.sessions.entry(e.session).or_default();
                known.paused = e.to == u64::MAX;
                if !known.paused && known.last_end != 0 {
                    known.last_end = known.last_end.max(e.to);
                }
            }
            // Its process has exited, or is no longer recorded.
            Event::Totals(totals) if totals.ended => drop(self.sessions.remove(&totals.session)),
            _ => {}
        }
    }

    fn ended(&mut self, session: SessionId, correlation: u32) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.running.remove(&correlation);
        }
    }

    /// Whether work that was launched before this time has not run, or its record has not arrived.
    pub fn is_outstanding(&self, time: u64) -> bool {
        self.sessions.values().flat_map(|known| known.running.values()).any(|launched| *launched <= time)
    }

    /// Returns a process that has been idle for `limit`, and for how long. Each idle time is returned once.
    pub fn idle(&mut self, now: u64, limit: u64) -> Option<(SessionId, u64)> {
        self.sessions.iter_mut().find_map(|(session, known)| {
            let idle = now.saturating_sub(known.last_end);
            let is = known.last_end != 0 && !known.reported && !known.paused && known.running.is_empty();
            (is && idle >= limit.saturating_add(LATE_NS)).then(|| {
                known.reported = true;
                (*session, idle)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::event::{Activity, Failed, Launch, Pause};

    const S: u64 = 1_000_000_000;

    fn launch(correlation: u32, time: u64) -> Event {
        Event::Launch(Launch { correlation, time, ..Launch::default() })
    }

    fn activity(correlation: u32, end: u64) -> Event {
        Event::Activity(Activity { correlation, start: 1, end, ..Activity::default() })
    }

    /// Check that a process is idle once after each use, that launched work keeps it from being idle, and that a process
    /// that has not used its GPU is not idle.
    #[test]
    fn idle_times_are_found_once() {
        let mut work = Work::default();
        work.event(&launch(1, S));
        assert_eq!(work.idle(100 * S, 5 * S), None, "it runs, or was never used");
        work.event(&activity(1, 101 * S));
        assert_eq!(work.idle(105 * S, 5 * S), None);
        assert_eq!(work.idle(107 * S, 5 * S), Some((SessionId(0), 6 * S)));
        assert_eq!(work.idle(120 * S, 5 * S), None, "reported");
        work.event(&launch(2, 120 * S));
        work.event(&activity(2, 121 * S));
        work.event(&launch(3, 130 * S));
        assert_eq!(work.idle(140 * S, 5 * S), None, "a long kernel");
        assert!(work.is_outstanding(130 * S) && !work.is_outstanding(129 * S));
        work.event(&Event::Failed(Failed { session: SessionId(0), correlation: 3, code: 1 }));
        assert!(!work.is_outstanding(140 * S));
        let pause = |to| Event::Pause(Pause { from: 131 * S, to, ..Pause::default() });
        work.event(&pause(u64::MAX));
        assert_eq!(work.idle(141 * S, 5 * S), None, "torch.profiler is used");
        work.event(&pause(142 * S));
        assert_eq!(work.idle(147 * S, 5 * S), None);
        assert_eq!(work.idle(149 * S, 5 * S), Some((SessionId(0), 7 * S)));
    }
}
