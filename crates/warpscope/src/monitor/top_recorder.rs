//! The key `r` of `top`: records a process for a few seconds.

use metrics::top::Recorder;

use super::recording::{self, Recording};

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
            Ok((success, said)) => summary(pid, success, &said),
            Err(error) => format!("process {pid}: the recording failed: {error}"),
        })
    }
}

/// Returns one line from the messages of a recording: its files and its launches, or its error.
fn summary(pid: u32, success: bool, said: &str) -> String {
    let files: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("wrote ")?.split("  (").next()).collect();
    if !success || files.is_empty() {
        return format!("process {pid}: the recording failed: {}", recording::failure(said));
    }
    let counts = said.lines().find(|line| line.contains(" per second), ")).unwrap_or("no GPU work");
    format!("process {pid}: wrote {}: {counts}", files.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one line has the files and the counts, and that an error is shown instead.
    #[test]
    fn recordings_are_summarised() {
        let said = "app (7)\n\n5 launches (1 per second), 5 kernels of 5 ms\n\nmatched 100 %\nwrote a.html  (1 KiB)\nwrote a.wscope  (2 KiB)\n";
        let expected = "process 7: wrote a.html and a.wscope: 5 launches (1 per second), 5 kernels of 5 ms";
        assert_eq!(summary(7, true, said), expected);
        let expected = "process 7: the recording failed: there is no process 7";
        assert_eq!(summary(7, false, "warpscope: there is no process 7\n"), expected);
    }
}
