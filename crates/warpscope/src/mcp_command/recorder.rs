//! Records the command that the user has configured, in a process of its own.

use std::{
    ffi::OsString,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The longest recording.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a recording may take to end after that.
const ENDING: Duration = Duration::from_secs(20);
/// How often a recording is looked at.
const INTERVAL: Duration = Duration::from_millis(50);
/// The end of the output that is returned.
const PRINTED: i64 = 2_000;

/// Records, and returns the name of the recording and the end of what was printed.
pub fn record(
    directory: &Path,
    arguments: &[OsString],
    cancelled: &dyn Fn() -> bool,
) -> anyhow::Result<(String, String)> {
    let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
    let name = format!("agent-{since}.wscope");
    let path = directory.join(&name);
    let mut printed = tempfile::tempfile().context("cannot create a temporary file")?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("record").arg("-o").arg(&path).args(arguments);
    // Stdout is the agent's.
    command.stdin(Stdio::null()).stdout(printed.try_clone()?).stderr(printed.try_clone()?);
    let mut child = command.spawn().context("cannot start warpscope record")?;
    let started = Instant::now();
    let ended = wait(&mut child, &|| cancelled() || started.elapsed() > LONGEST)?;
    let text = end(&mut printed)?;
    if cancelled() {
        bail!("cancelled");
    }
    if !path.exists() {
        bail!("{ended}, and nothing was recorded: {text}");
    }
    Ok((name, format!("{ended}\n{text}")))
}

/// Waits until a recording has ended, or ends it.
fn wait(child: &mut Child, is_enough: &dyn Fn() -> bool) -> anyhow::Result<String> {
    let mut stopped: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.to_string());
        }
        match stopped {
            None if is_enough() => {
                // It forwards the signal and finishes its file.
                let pid = Pid::from_raw(i32::try_from(child.id())?).context("a process has an id")?;
                kill_process(pid, Signal::TERM)?;
                stopped = Some(Instant::now());
            }
            Some(since) if since.elapsed() > ENDING => child.kill()?,
            _ => {}
        }
        thread::sleep(INTERVAL);
    }
}

/// Returns the end of a file.
fn end(file: &mut File) -> anyhow::Result<String> {
    let length = i64::try_from(file.metadata()?.len())?;
    file.seek(SeekFrom::End(-length.min(PRINTED)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
