//! The key `r` of `top`: records a process for a few seconds.

use metrics::top::Recorder;

use super::recording::{Ended, Recording};

/// Records processes, one at a time.
pub struct TopRecorder {
    seconds: f64,
    running: Option<Recording>,
}

impl TopRecorder {
    /// Creates one whose recordings take `seconds`.
    pub fn new(seconds: f64) -> Self {
        Self { seconds, running: None }
    }
}

impl Recorder for TopRecorder {
    fn start(&mut self, pid: u32) -> String {
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

    fn ended(&mut self) -> Option<String> {
        let ended = self.running.as_mut()?.ended()?;
        let pid = self.running.take()?.pid;
        Some(match ended {
            Ok(Ended::Recorded(recorded)) => format!("process {pid}: {}", recorded.text()),
            Ok(Ended::Failed(why)) => format!("process {pid}: the recording failed: {why}"),
            Err(error) => format!("process {pid}: the recording failed: {error}"),
        })
    }
}
