//! Programs compiled from C.
#![allow(dead_code, reason = "each test uses a part")]

use std::{
    ffi::CStr,
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use attach::Attach;

/// A running program of `tests/*.c` that has written "ready".
pub struct Program {
    child: Child,
    pid: u32,
    output: BufReader<ChildStdout>,
    /// Kept until the program has ended.
    folder: Option<tempfile::TempDir>,
}

/// Compiles a program or library of `tests/*.c`.
pub fn compile(folder: &Path, source: &str, options: &[&str]) -> std::path::PathBuf {
    let output = folder.join(source.replace('.', "_"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let mut command = Command::new("cc");
    command.args(["-O1", "-mavx", "-w", "-pthread", "-o"]).arg(&output).arg(source).args(options);
    assert!(command.status().expect("a C compiler").success());
    output
}

/// Returns the bytes of the test library.
pub fn library() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    fs::read(compile(folder.path(), "library.c", &["-shared", "-fPIC"])).expect("the library")
}

/// Returns an attempt with the usual limits.
pub fn attach<'a>(program: &Program, library: &'a [u8], entry: &'a CStr, argument: &'a [u8]) -> Attach<'a> {
    let limit = Duration::from_secs(60);
    Attach { pid: program.pid(), library, name: "library.so", entry, argument, patience: limit, answer: limit }
}

/// Restricts a thread to the first CPU; 0 is the current thread.
pub fn use_first_cpu(tid: u32) {
    // SAFETY: the set is a local of the size that is passed.
    unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(tid as i32, size_of_val(&set), &set), 0);
    }
}

impl Program {
    /// Restricts its threads to the first CPU, with the lowest priority.
    pub fn starve(&self) {
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid)).expect("its threads").flatten() {
            let tid = entry.file_name().to_str().and_then(|name| name.parse().ok()).expect("a number");
            use_first_cpu(tid);
            // SAFETY: only takes numbers.
            assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, 19) }, 0);
        }
    }

    pub fn start(source: &str, options: &[&str], arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = compile(folder.path(), source, options);
        let mut command = Command::new(program);
        let mut started = Self::of(command.args(arguments));
        started.folder = Some(folder);
        started
    }

    /// Starts a command that writes "ready".
    pub fn of(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("start the program");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let pid = line.strip_prefix("ready").expect("ready").trim().parse().unwrap_or(child.id());
        Program { child, pid, output, folder: None }
    }

    /// Sends it a byte and returns the line that it answers.
    pub fn answer(&mut self) -> String {
        self.child.stdin.as_mut().expect("its input").write_all(b"?").expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    /// Returns the process to enter.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the process that was started.
    pub fn parent(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a system call without pointers, for a process that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid as i32, signal) }, 0);
    }

    /// Kills it.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    /// Waits until its main thread is in this state.
    pub fn wait_for_state(&self, state: char) {
        let stat = || fs::read_to_string(format!("/proc/{}/stat", self.pid)).expect("its state");
        while !stat().contains(&format!(") {state} ")) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the number of open files.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("its files").count()
    }

    /// Waits until it has this number of threads.
    pub fn wait_for_threads(&self, count: usize) {
        let threads = || fs::read_dir(format!("/proc/{}/task", self.pid())).expect("its threads").count();
        while threads() != count {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends its input and returns the rest of its output.
    pub fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("its output");
        assert!(self.child.wait().expect("its end").success(), "{rest}");
        rest
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
