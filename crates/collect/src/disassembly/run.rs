//! Runs a disassembler with limits.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::fs::{MemfdFlags, memfd_create};

use super::tools::Tool;
use crate::command::user::{User, become_user};

/// The longest line that is read; the rest of it is skipped.
const LONGEST_LINE: usize = 4096;

/// What a disassembler may use.
pub struct Limits {
    /// It is killed at this time.
    pub end: Instant,
    /// Bytes that it prints.
    pub output: u64,
    /// Bytes of its memory.
    pub memory: u64,
}

impl Limits {
    /// The usual limits, and an end. An instruction is printed as about 100 bytes, so this is room for the largest cubin.
    pub fn until(end: Instant) -> Self {
        Self { end: end.min(Instant::now() + Duration::from_secs(20)), output: 64 << 20, memory: 4 << 30 }
    }
}

/// Disassembles a cubin, as `user` or as our own, and without any capability; `line` receives the lines. Whatever fails: there are
/// fewer lines, or none.
pub fn run(tool: &Tool, user: Option<&User>, cubin: &[u8], limits: &Limits, line: &mut dyn FnMut(&str)) {
    let Ok(mut child) = spawn(tool, user, cubin, limits) else { return };
    // An error ends the lines, like the limits.
    let _ = lines(&mut child, limits, line);
    if let Ok(group) = i32::try_from(child.id()) {
        // SAFETY: a plain system call. The child was not waited for, so the number is still that of its group.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    // It has ended, or was just killed.
    let _ = child.wait();
}

fn spawn(tool: &Tool, user: Option<&User>, cubin: &[u8], limits: &Limits) -> io::Result<Child> {
    if Instant::now() >= limits.end {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut file = File::from(memfd_create(c"warpscope-cubin", MemfdFlags::CLOEXEC)?);
    file.write_all(cubin)?;
    let program = tool.file.as_raw_fd();
    let mut command = Command::new(format!("/proc/self/fd/{program}"));
    command.arg0(&tool.path);
    // Only the code, and without an analysis of its control flow. It opens its input again, from the beginning.
    command.args(["-c", "-ndf", "/dev/stdin"]);
    command.env_clear().current_dir("/").process_group(0);
    command.stdin(file).stdout(Stdio::piped()).stderr(Stdio::null());
    let (user, memory) = (user.cloned(), limits.memory);
    // SAFETY: between fork and exec only system calls are made; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            if let Some(user) = &user {
                become_user(user)?;
            }
            // After the change of user, which resets it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            sandbox::drop_capabilities()?;
            // A script is opened again by its interpreter.
            if libc::fcntl(program, libc::F_SETFD, 0) != 0 {
                return Err(io::Error::last_os_error());
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
fn lines(child: &mut Child, limits: &Limits, line: &mut dyn FnMut(&str)) -> io::Result<()> {
    let mut output = child.stdout.take().ok_or(io::ErrorKind::NotFound)?;
    let (mut buffer, mut current) = (vec![0; 1 << 16], Vec::new());
    let mut left = limits.output;
    loop {
        wait(&output, limits.end)?;
        let count = output.read(&mut buffer)?;
        let Some(rest) = left.checked_sub(count as u64).filter(|_| count > 0) else { return Ok(()) };
        left = rest;
        for part in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
            let room = LONGEST_LINE - current.len();
            current.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                line(&String::from_utf8_lossy(&current));
                current.clear();
            }
        }
    }
}

/// Waits until something can be read.
fn wait(from: &impl AsRawFd, end: Instant) -> io::Result<()> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut of = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // A little more, so that it does not end before the time.
        let milliseconds = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
        // SAFETY: one entry, which is writable.
        match unsafe { libc::poll(&raw mut of, 1, milliseconds) } {
            1 => return Ok(()),
            -1 if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                return Err(io::Error::last_os_error());
            }
            _ if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// Runs a shell script as the disassembler; returns its lines.
    fn printed(script: &str, limits: &Limits) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nvdisasm");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the directory is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut lines = Vec::new();
        let tool = Tool::open(&path).expect("it is there");
        run(&tool, None, b"the cubin", limits, &mut |line| lines.push(line.trim_end().to_owned()));
        lines
    }

    fn usual() -> Limits {
        Limits::until(Instant::now() + Duration::from_secs(60))
    }

    /// Check what the disassembler gets: the cubin, its options, no environment of ours, and limits.
    #[test]
    fn it_gets_the_cubin_and_nothing_else() {
        let script = "cat \"$3\"; echo; echo \"$1 $2 $3 [$HOME] $PWD\"; ulimit -c; ulimit -v; exit 3";
        assert_eq!(printed(script, &usual()), ["the cubin", "-c -ndf /dev/stdin [] /", "0", "4194304"]);
    }

    /// Check that a disassembler that does not end is killed with its children, and that what it printed is kept.
    #[test]
    fn it_is_killed_in_time() {
        let soon = Limits { end: Instant::now() + Duration::from_secs(5), ..usual() };
        assert_eq!(printed("echo one; sleep 1000 & wait", &soon), ["one"]);
        let past = Limits { end: Instant::now(), ..usual() };
        assert!(printed("echo one", &past).is_empty(), "not started");
    }

    /// Check that endless output and endless lines end.
    #[test]
    fn its_output_is_limited() {
        let little = || Limits { output: 1 << 20, ..usual() };
        let lines = printed("while :; do echo 0123456789abcde; done", &little());
        assert!(lines.len() <= 1 << 16 && lines.iter().all(|line| line == "0123456789abcde"));
        assert!(printed("cat /dev/zero", &little()).is_empty());
        let long = printed("head -c 100000 /dev/zero | tr '\\0' x; echo; echo end", &usual());
        assert_eq!(long.iter().map(String::len).collect::<Vec<_>>(), [LONGEST_LINE, 3]);
    }

    /// Check that a disassembler that cannot be started has no lines.
    #[test]
    fn one_that_cannot_run_has_no_lines() {
        let directory = Tool::open(std::path::Path::new("/")).expect("it is there");
        run(&directory, None, b"", &usual(), &mut |_| panic!("no line"));
    }

    /// Check that what was opened runs, and not what has taken its place, and that it has no capability.
    #[test]
    fn what_was_opened_is_what_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let [path, other] = ["nvdisasm", "other"].map(|name| directory.path().join(name));
        for (path, script) in [(&path, "echo checked; grep CapEff /proc/self/status"), (&other, "echo exchanged")] {
            fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("the directory is writable");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        let tool = Tool::open(&path).expect("it is there");
        fs::rename(&other, &path).expect("ours");
        let mut lines = Vec::new();
        run(&tool, None, b"", &usual(), &mut |line| lines.push(line.trim_end().to_owned()));
        assert_eq!(lines, ["checked", "CapEff:\t0000000000000000"]);
    }
}
