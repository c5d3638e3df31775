//! Runs a disassembler with limits.

use std::{
    fs::File,
    io::{self, Write},
    os::{fd::AsRawFd, unix::process::CommandExt},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::fs::{MemfdFlags, memfd_create};

use super::tools::Tool;
use crate::{
    command::user::User,
    confined::{self, Limits},
};

/// The longest line that is read; the rest of it is skipped.
const LONGEST_LINE: usize = 4096;

/// The usual limits, and an end. An instruction is printed as about 100 bytes, so this is room for the largest cubin.
pub fn until(end: Instant) -> Limits<'static> {
    Limits {
        end: end.min(Instant::now() + Duration::from_secs(20)),
        is_cancelled: &|| false,
        with_errors: false,
        output: 64 << 20,
        line: LONGEST_LINE,
        memory: 4 << 30,
        is_read_only: false,
    }
}

/// Disassembles a cubin, as `user` or as our own, and without any capability; `line` receives the lines. Whatever fails: there are
/// fewer lines, or none.
pub fn run(tool: &Tool, user: Option<&User>, cubin: &[u8], limits: &Limits<'_>, line: &mut dyn FnMut(&str)) {
    // An error ends the lines, like the limits.
    let _ = command(tool, cubin).and_then(|command| confined::run(command, user, limits, line));
}

fn command(tool: &Tool, cubin: &[u8]) -> io::Result<Command> {
    let mut file = File::from(memfd_create(c"warpscope-cubin", MemfdFlags::CLOEXEC)?);
    file.write_all(cubin)?;
    let program = tool.file.as_raw_fd();
    let mut command = Command::new(format!("/proc/self/fd/{program}"));
    command.arg0(&tool.path);
    // Only the code, and without an analysis of its control flow. It opens its input again, from the beginning.
    command.args(["-c", "-ndf", "/dev/stdin"]);
    command.env_clear().current_dir("/").stdin(file).stderr(Stdio::null());
    // SAFETY: one system call between fork and exec.
    unsafe {
        // A script is opened again by its interpreter.
        command.pre_exec(move || match libc::fcntl(program, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// Runs a shell script as the disassembler; returns its lines.
    fn printed(script: &str, limits: &Limits<'_>) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nvdisasm");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the directory is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut lines = Vec::new();
        let tool = Tool::open(&path).expect("it is there");
        run(&tool, None, b"the cubin", limits, &mut |line| lines.push(line.trim_end().to_owned()));
        lines
    }

    fn usual() -> Limits<'static> {
        until(Instant::now() + Duration::from_secs(60))
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
