//! The key `r`: records a process for a few seconds.

use crate::recording::Recording;

/// Records processes, one at a time.
pub(super) struct Recorder {
    seconds: f64,
    running: Option<Recording>,
}

impl Recorder {
    /// Creates one whose recordings take `seconds`.
    pub(super) fn new(seconds: f64) -> Self {
        Self { seconds, running: None }
    }

    /// Begins to record a process; returns a message.
    pub(super) fn start(&mut self, pid: u32) -> String {
        if let Some(running) = &self.running {
            return format!("process {} is being recorded; one recording at a time", running.pid);
        }
        match Recording::start(pid, self.seconds, None) {
            Ok(running) => {
                self.running = Some(running);
                format!("recording process {pid} for {} s", self.seconds)
            }
            Err(error) => format!("cannot record process {pid}: {error}"),
        }
    }

    /// Returns a message once a recording has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        let ended = self.running.as_mut()?.ended()?;
        let pid = self.running.take()?.pid;
        Some(match ended {
            Ok(recorded) => format!("process {pid}: {recorded}"),
            Err(why) => format!("process {pid}: the recording failed: {why}"),
        })
    }
}
