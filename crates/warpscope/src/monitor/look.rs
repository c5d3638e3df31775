//! The key `r` of `top`: records a process for a few seconds, by `warpscope record -p` in the background.

use std::{
    fs::File,
    io::{self, Read, Seek},
    process::{Child, Command, Stdio},
};

use metrics::top::Recorder;

/// The most that is read of the messages of a recording.
const MOST_TEXT: u64 = 1 << 20;

/// Records processes, one at a time.
pub struct Look {
    seconds: f64,
    running: Option<Running>,
}

/// A recording.
struct Running {
    pid: u32,
    child: Child,
    /// Its messages.
    text: File,
}

impl Look {
    /// Creates one whose recordings take `seconds`.
    pub fn new(seconds: f64) -> Self {
        Self { seconds, running: None }
    }

    fn begin(&self, pid: u32) -> io::Result<Running> {
        let text = tempfile::tempfile()?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["record", "-p", &pid.to_string(), "-d", &self.seconds.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(text.try_clone()?).spawn()?;
        Ok(Running { pid, child, text })
    }
}

impl Recorder for Look {
    fn start(&mut self, pid: u32) -> String {
        if let Some(running) = &self.running {
            return format!("process {} is being recorded; one recording at a time", running.pid);
        }
        match self.begin(pid) {
            Ok(running) => {
                self.running = Some(running);
                format!("recording process {pid} for {} s", self.seconds)
            }
            Err(error) => format!("cannot record process {pid}: {error}"),
        }
    }

    fn ended(&mut self) -> Option<String> {
        let running = self.running.as_mut()?;
        let status = running.child.try_wait();
        if matches!(status, Ok(None)) {
            return None;
        }
        let Running { pid, mut text, .. } = self.running.take()?;
        let mut said = Vec::new();
        let read = text.rewind().and_then(|()| text.take(MOST_TEXT).read_to_end(&mut said));
        let said = String::from_utf8_lossy(&said).into_owned();
        Some(match (status, read) {
            (Ok(Some(status)), Ok(_)) => summary(pid, status.success(), &said),
            (Err(error), _) | (_, Err(error)) => format!("process {pid}: the recording failed: {error}"),
            (Ok(None), _) => return None,
        })
    }
}

impl Drop for Look {
    /// Ends a recording in order: nothing of it stays in the recorded process.
    fn drop(&mut self) {
        if let Some(Running { child, .. }) = &mut self.running {
            // SAFETY: a signal to our own child, which has not been waited for.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
            // It has been waited for, or is gone.
            let _ = child.wait();
        }
    }
}

/// Returns one line from the messages of a recording: its files and its launches, or its error.
fn summary(pid: u32, success: bool, said: &str) -> String {
    let files: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("wrote ")?.split("  (").next()).collect();
    if !success || files.is_empty() {
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
        return format!("process {pid}: the recording failed: {}", last.trim_start_matches("warpscope: "));
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
