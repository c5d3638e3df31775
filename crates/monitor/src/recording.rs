//! A recording of one process, by `warpscope record -p` in the background.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Seek},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// How much is read of the messages of a recording.
const MAX_TEXT: u64 = 1 << 20;

/// A recording in progress.
pub struct Recording {
    /// The recorded process.
    pub pid: u32,
    child: Child,
    /// Its messages.
    text: File,
    /// What it recorded, in one line.
    result: File,
    ended: bool,
}

impl Recording {
    /// Starts to record a process for some seconds, to `output` or to the default files.
    pub fn start(pid: u32, seconds: f64, output: Option<&OsStr>) -> io::Result<Self> {
        let (text, result) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut command = Command::new("/proc/self/exe");
        command.args(["record", "--result", "-p", &pid.to_string(), "-d", &seconds.to_string()]);
        if let Some(output) = output {
            command.arg("-o").arg(output);
        }
        command.stdin(Stdio::null()).stdout(result.try_clone()?).stderr(text.try_clone()?);
        let parent = std::process::id();
        // SAFETY: between fork and exec only system calls are made.
        unsafe { command.pre_exec(move || end_with(parent)) };
        let child = command.spawn()?;
        // SAFETY: a plain system call on our own child. It must not have the priority of the thread that started it.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, child.id(), 0) };
        Ok(Self { pid, child, text, result, ended: false })
    }

    /// Returns what it recorded, or why it failed; `None` while it runs.
    pub fn ended(&mut self) -> Option<Result<String, String>> {
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            Err(error) => return Some(Err(error.to_string())),
        };
        self.ended = true;
        Some(self.outcome(status.success()).unwrap_or_else(|error| Err(error.to_string())))
    }

    fn outcome(&self, success: bool) -> io::Result<Result<String, String>> {
        let recorded = read(&self.result)?;
        if success && !recorded.is_empty() {
            return Ok(Ok(recorded.trim_end().to_owned()));
        }
        Ok(Err(failure(&read(&self.text)?).to_owned()))
    }
}

/// Reads a file from its beginning.
fn read(mut file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(MAX_TEXT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Ends this process in order when the thread that started it ends, even if that is killed.
fn end_with(parent: u32) -> io::Result<()> {
    // SAFETY: plain system calls.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
            return Err(io::Error::last_os_error());
        }
        // It was killed before the call above.
        if libc::getppid().cast_unsigned() != parent {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(())
}

impl Drop for Recording {
    /// Ends it in order: nothing of it stays in the recorded process.
    fn drop(&mut self) {
        if !self.ended {
            // SAFETY: a signal to our own child, which has not been waited for.
            unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
            // It has been waited for, or is gone.
            let _ = self.child.wait();
        }
    }
}

/// Returns the reason for a failure: the last message.
fn failure(said: &str) -> &str {
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    last.trim_start_matches("warpscope: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the last message is the reason.
    #[test]
    fn the_last_message_is_the_reason() {
        assert_eq!(failure("app (7)\n\nwarpscope: there is no process 7\n\n"), "there is no process 7");
        assert_eq!(failure(""), "no message");
    }
}
