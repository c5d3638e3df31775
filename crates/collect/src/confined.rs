//! Runs a program of others within limits: with the rights of the user, without capabilities, for a bounded time, and with bounded
//! memory and output. It writes no file.

use std::{
    io::{self, PipeReader, PipeWriter, Read},
    os::{fd::AsRawFd, unix::process::CommandExt},
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::command::user::{User, become_user};

/// How often cancellation is noticed.
const INTERVAL: Duration = Duration::from_millis(50);

/// What a program may use.
pub struct Limits<'a> {
    /// It is killed at this time.
    pub end: Instant,
    /// Or when this holds.
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// Its errors are lines as well.
    pub with_errors: bool,
    /// Bytes that it prints.
    pub output: u64,
    /// Bytes of a line; the rest of it is skipped.
    pub line: usize,
    /// Bytes of its memory.
    pub memory: u64,
    /// It may not use TCP, nor create, change or remove files, where the kernel can forbid that. Otherwise only their contents are
    /// safe.
    pub is_read_only: bool,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It was killed at the end of its time.
    TimedOut,
    /// It was killed because nobody needs it.
    Cancelled,
    /// It was killed because it printed too much.
    Output,
}

/// Runs a program as `user` or as ourselves; `line` receives the lines that it prints. Whatever it has started ends with it.
pub fn run(command: Command, user: Option<&User>, limits: &Limits<'_>, line: &mut dyn FnMut(&str)) -> io::Result<End> {
    if Instant::now() >= limits.end {
        return Ok(End::TimedOut);
    }
    let (output, printed) = io::pipe()?;
    let mut child = spawn(command, user, limits, printed)?;
    let ended = lines(output, limits, line).and_then(|ended| match (ended, Pid::from_raw(child.id().cast_signed())) {
        // It has closed its output, and has not necessarily exited.
        (None, Some(pid)) => wait(&pidfd_open(pid, PidfdFlags::empty())?, limits),
        (ended, _) => Ok(ended),
    });
    // SAFETY: a plain system call. The child was not waited for, so the number is still that of its group.
    unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
    let status = child.wait()?;
    Ok(ended?.unwrap_or(End::Exited(status)))
}

/// Starts it. Only the child keeps the pipe open.
fn spawn(mut command: Command, user: Option<&User>, limits: &Limits<'_>, printed: PipeWriter) -> io::Result<Child> {
    if limits.with_errors {
        command.stderr(printed.try_clone()?);
    }
    command.process_group(0).stdout(printed);
    let (user, memory, is_read_only) = (user.cloned(), limits.memory, limits.is_read_only);
    // SAFETY: between fork and exec only system calls are made; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            if let Some(user) = &user {
                become_user(user)?;
            }
            // After the change of user, which resets it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            sandbox::drop_capabilities()?;
            if is_read_only {
                sandbox::forbid_writing();
            }
            let most =
                [(libc::RLIMIT_AS, memory), (libc::RLIMIT_CPU, 60), (libc::RLIMIT_CORE, 0), (libc::RLIMIT_FSIZE, 0)];
            for (resource, most) in most {
                let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
                if libc::setrlimit(resource, &raw const limit) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn()
}

/// Reads the lines that the child prints, until it ends or a limit is reached.
fn lines(mut output: PipeReader, limits: &Limits<'_>, line: &mut dyn FnMut(&str)) -> io::Result<Option<End>> {
    let (mut buffer, mut current) = (vec![0; 1 << 16], Vec::new());
    let mut left = limits.output;
    loop {
        if let Some(end) = wait(&output, limits)? {
            return Ok(Some(end));
        }
        let count = output.read(&mut buffer)?;
        if count == 0 {
            return Ok(None);
        }
        let printed = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        for part in buffer[..printed].split_inclusive(|byte| *byte == b'\n') {
            let room = limits.line - current.len();
            current.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                line(&String::from_utf8_lossy(&current));
                current.clear();
            }
        }
        if printed < count {
            return Ok(Some(End::Output));
        }
        left -= printed as u64;
    }
}

/// Waits until something can be read or a process has exited, or a limit is reached.
fn wait(from: &impl AsRawFd, limits: &Limits<'_>) -> io::Result<Option<End>> {
    loop {
        let left = limits.end.saturating_duration_since(Instant::now());
        let mut of = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // A little more, so that it does not end before the time.
        let milliseconds = left.min(INTERVAL).as_millis() as libc::c_int + 1;
        // SAFETY: one entry, which is writable.
        match unsafe { libc::poll(&raw mut of, 1, milliseconds) } {
            _ if (limits.is_cancelled)() => return Ok(Some(End::Cancelled)),
            1 => return Ok(None),
            -1 if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                return Err(io::Error::last_os_error());
            }
            _ if left.is_zero() => return Ok(Some(End::TimedOut)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, process::Stdio};

    use super::*;

    /// Runs a shell script with these limits; returns how it ended, and its lines. `seen` counts them meanwhile.
    fn printed_and_seen(script: &str, limits: &Limits<'_>, seen: &Cell<usize>) -> (End, Vec<String>) {
        let mut lines = Vec::new();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null());
        let end = run(command, None, limits, &mut |line| {
            lines.push(line.trim_end().to_owned());
            seen.set(lines.len());
        });
        (end.expect("a shell"), lines)
    }

    fn printed(script: &str, limits: &Limits<'_>) -> (End, Vec<String>) {
        printed_and_seen(script, limits, &Cell::new(0))
    }

    fn usual() -> Limits<'static> {
        let end = Instant::now() + Duration::from_secs(60);
        Limits {
            end,
            is_cancelled: &|| false,
            with_errors: false,
            output: 1 << 20,
            line: 100,
            memory: 1 << 30,
            is_read_only: true,
        }
    }

    /// Check that a program ends when its time is over, it is cancelled, or it prints too much, with everything that it started; and
    /// that what it printed before is kept.
    #[test]
    fn programs_end_at_their_limits() {
        let soon = Limits { end: Instant::now() + Duration::from_secs(3), ..usual() };
        assert_eq!(printed("echo one; sleep 1000 & wait", &soon), (End::TimedOut, vec!["one".to_owned()]));
        let seen = Cell::new(0);
        let limits = Limits { is_cancelled: &|| seen.get() > 0, ..usual() };
        let cancelled = printed_and_seen("echo one; sleep 1000 & wait", &limits, &seen);
        assert_eq!(cancelled, (End::Cancelled, vec!["one".to_owned()]));
        // All that is allowed, however it arrives.
        let (end, lines) = printed("head -c 1000000 /dev/zero | tr '\\0' '\\n'", &Limits { output: 1_000, ..usual() });
        assert_eq!((end, lines.len()), (End::Output, 1_000));
        assert!(matches!(printed("exit 3", &usual()), (End::Exited(status), _) if status.code() == Some(3)));
        assert_eq!(printed("echo one", &Limits { end: Instant::now(), ..usual() }).0, End::TimedOut);
    }

    /// Check that errors are lines where they are wanted, in their place.
    #[test]
    fn errors_are_lines() {
        let limits = Limits { with_errors: true, ..usual() };
        assert_eq!(printed("echo one; echo two >&2; echo three", &limits).1, ["one", "two", "three"]);
    }

    /// Check that a program writes no file, and that it creates none where the kernel can forbid it.
    #[test]
    fn programs_write_no_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        let script = format!("echo text >{0}; cat {0}; ulimit -f; grep CapEff /proc/self/status", file.display());
        let (_, lines) = printed(&script, &usual());
        assert_eq!(lines, ["0", "CapEff:\t0000000000000000"]);
        assert_eq!(file.exists(), !sandbox::can_forbid_writing());
    }
}
