//! Processes under test: started in their own group, never left behind, and never waited for without a limit.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Only a hanging test takes as long as this, except for a siege that was made longer.
const LIMIT: Duration = Duration::from_secs(300);

fn limit() -> Duration {
    let siege = env::var("WARPSCOPE_SIEGE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    LIMIT + Duration::from_secs(siege.unwrap_or(0))
}

/// A running process.
pub struct Running {
    child: Child,
    stdout: Option<Stream<ChildStdout>>,
    stderr: Option<Stream<ChildStderr>>,
    /// Dropped when the process has been waited for, which cancels the watchdog.
    watched: Option<mpsc::Sender<()>>,
    watchdog: Option<thread::JoinHandle<bool>>,
}

/// The exit status of a process, and its whole output.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// The peak resource use of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    /// Resident memory, in bytes.
    pub memory: u64,
    pub descriptors: usize,
}

/// Returns the peak resident memory of a process, in bytes; 0 if it has exited.
pub fn peak_memory(pid: libc::pid_t) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |line: &str| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
    status.lines().find_map(kib).unwrap_or(0) << 10
}

struct Stream<R> {
    from: BufReader<R>,
    seen: Vec<u8>,
}

impl<R: Read> Stream<R> {
    fn line(&mut self) -> String {
        let begin = self.seen.len();
        self.from.read_until(b'\n', &mut self.seen).expect("the pipe can be read");
        String::from_utf8_lossy(&self.seen[begin..]).trim_end().to_owned()
    }

    fn rest(mut self) -> Vec<u8> {
        self.from.read_to_end(&mut self.seen).expect("the pipe can be read");
        self.seen
    }
}

impl Running {
    /// Starts a process as the leader of a new group.
    pub fn start(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn();
        Self::watch(child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")))
    }

    /// Watches a process that has already created its own session.
    pub fn watch(mut child: Child) -> Self {
        let group = child.id().cast_signed();
        let (watched, over) = mpsc::channel();
        let watchdog = thread::spawn(move || {
            let late = over.recv_timeout(limit()) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                kill(-group, libc::SIGKILL);
            }
            late
        });
        let stdout = child.stdout.take().map(|pipe| Stream { from: BufReader::new(pipe), seen: Vec::new() });
        let stderr = child.stderr.take().map(|pipe| Stream { from: BufReader::new(pipe), seen: Vec::new() });
        Self { child, stdout, stderr, watched: Some(watched), watchdog: Some(watchdog) }
    }

    /// Takes the pipe to its input.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("stdin is a pipe")
    }

    /// Waits for the next line on stdout; empty at its end.
    pub fn stdout_line(&mut self) -> String {
        self.stdout.as_mut().expect("stdout is a pipe").line()
    }

    /// Reads stderr up to a line that contains `text`, and returns that line.
    pub fn stderr_until(&mut self, text: &str) -> String {
        let stderr = self.stderr.as_mut().expect("stderr is a pipe");
        loop {
            let line = stderr.line();
            let ended = line.is_empty() && !stderr.seen.ends_with(b"\n\n");
            assert!(!ended, "no line with `{text}` on stderr: {}", String::from_utf8_lossy(&stderr.seen));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The pid.
    pub fn pid(&self) -> libc::pid_t {
        self.child.id().cast_signed()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: libc::c_int) {
        assert_eq!(kill(self.pid(), signal), 0, "the process is there");
    }

    /// Whether the process has not exited yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Waits for the process to exit and for the end of its output.
    pub fn wait(mut self) -> Ended {
        let stderr = self.stderr.take().map(|stream| thread::spawn(|| stream.rest()));
        let stdout = self.stdout.take().map(Stream::rest).unwrap_or_default();
        let stderr = stderr.map(|reader| reader.join().expect("stderr is read")).unwrap_or_default();
        let status = self.child.wait().expect("it is our child");
        drop(self.watched.take());
        let late = self.watchdog.take().map(|watchdog| watchdog.join().expect("the watchdog ends"));
        assert_ne!(late, Some(true), "still running after {:?}: {}", limit(), String::from_utf8_lossy(&stderr));
        Ended { status, stdout, stderr }
    }

    /// Waits for the process to exit, and measures its peak resource use meanwhile.
    pub fn wait_measured(mut self) -> (Ended, Footprint) {
        let mut peak = Footprint::default();
        while self.is_running() {
            peak.memory = peak.memory.max(peak_memory(self.pid()));
            let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count);
            peak.descriptors = peak.descriptors.max(descriptors);
            thread::sleep(Duration::from_millis(2));
        }
        (self.wait(), peak)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failed test leaves no process running.
        if self.watched.take().is_some() {
            kill(-self.pid(), libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// Runs a process until it exits.
    pub fn of(command: &mut Command) -> Self {
        Running::start(command).wait()
    }

    /// The standard output as text.
    pub fn out(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("stdout is text")
    }

    /// The standard error as text.
    pub fn err(&self) -> &str {
        std::str::from_utf8(&self.stderr).expect("stderr is text")
    }

    /// Asserts the exit status.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}\n{}", self.status, String::from_utf8_lossy(&self.stderr));
        self
    }

    /// Asserts the signal that killed the process.
    #[track_caller]
    pub fn dies_of(self, signal: libc::c_int) -> Self {
        assert_eq!(self.status.signal(), Some(signal), "{}\n{}", self.status, String::from_utf8_lossy(&self.stderr));
        self
    }

    /// Asserts that stderr is exactly one line, a sentence that contains these words.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        let text = self.err();
        assert!(text.starts_with("warpscope: ") && text.lines().count() == 1, "not one sentence: {text}");
        for word in words {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
        self
    }
}

/// The system call.
pub fn kill(pid: libc::pid_t, signal: libc::c_int) -> libc::c_int {
    // SAFETY: a plain system call.
    unsafe { libc::kill(pid, signal) }
}
