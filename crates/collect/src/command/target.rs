//! The recorded command: starts it and waits for it.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus},
    time::{Duration, Instant},
};

pub use wire::StallSampling;

use super::{
    capabilities::keep_own_capabilities,
    signals::Signals,
    user::{User, become_user},
};

/// In the environment of a program: the library that NVTX loads.
pub const NVTX_LIBRARY: &str = "NVTX_INJECTION64_PATH";

/// Additions to the command's environment.
#[derive(Debug, Default)]
pub struct Injection {
    /// The injected library and the socket it reports to.
    pub library: Option<(PathBuf, PathBuf)>,
    /// The budget in percent of the program's time.
    pub max_overhead: Option<f64>,
    /// Graphs are recorded as wholes.
    pub graph_level: bool,
    /// NVTX ranges are recorded.
    pub nvtx: bool,
    /// Kernels are sampled.
    pub stalls: Option<StallSampling>,
    /// Launches are measured: a part of the names of their kernels.
    pub limits: Option<String>,
    /// The directory of the simulated GPU's libraries.
    pub simulator: Option<PathBuf>,
    /// The injected library reports API calls.
    pub calls: bool,
}

impl Injection {
    /// Returns the settings of the injected library, by the names of their variables.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = Vec::new();
        if self.calls {
            variables.push((wire::CALLS_VARIABLE, "1".to_owned()));
        }
        if self.graph_level {
            variables.push((wire::GRAPH_LEVEL_VARIABLE, "1".to_owned()));
        }
        if let Some(sampling) = self.stalls {
            variables.push((wire::STALLS_VARIABLE, sampling.to_string()));
        }
        if let Some(kernels) = &self.limits {
            variables.push((wire::LIMITS_VARIABLE, kernels.clone()));
        }
        if let Some(percent) = self.max_overhead {
            variables.push((wire::MAX_OVERHEAD_VARIABLE, percent.to_string()));
        }
        variables
    }

    /// Returns the settings for a process that already runs: `NAME=VALUE`, separated by 0.
    pub fn settings(&self) -> Vec<u8> {
        self.variables().iter().flat_map(|(name, value)| format!("{name}={value}\0").into_bytes()).collect()
    }
}

/// The command could not be started.
#[derive(Debug)]
pub struct CannotRun {
    program: OsString,
    source: io::Error,
}

impl CannotRun {
    /// Returns the exit code that a shell would use: 127 if there is no such command, 126 if it cannot be run.
    pub fn exit_code(&self) -> u8 {
        if self.source.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

impl fmt::Display for CannotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = Path::new(&self.program).display();
        match self.source.kind() {
            io::ErrorKind::NotFound if !self.program.as_encoded_bytes().contains(&b'/') => {
                write!(f, "cannot run `{program}`: no such command in PATH")
            }
            io::ErrorKind::NotFound => write!(f, "cannot run `{program}`: no such file"),
            io::ErrorKind::PermissionDenied => {
                write!(f, "cannot run `{program}`: permission denied (is it executable?)")
            }
            _ => write!(f, "cannot run `{program}`: {}", self.source),
        }
    }
}

impl std::error::Error for CannotRun {}

/// Starts the command, as `user` if there is one.
pub fn start(command: &[OsString], injection: &Injection, user: Option<&User>) -> Result<Child, CannotRun> {
    let (program, arguments) = command.split_first().expect("the command line demands a command");
    let mut child = Command::new(program);
    child.args(arguments);
    if let Some((library, socket)) = &injection.library {
        child.env("CUDA_INJECTION64_PATH", library).env(wire::SOCKET_VARIABLE, socket);
        child.envs(injection.variables());
        // Another tool's library stays, unless ranges are requested: without ours, NCCL's communicators are not known.
        let other = std::env::var_os(NVTX_LIBRARY).filter(|path| !path.is_empty());
        if injection.nvtx || other.is_none() {
            child.env(NVTX_LIBRARY, library);
        }
        if injection.nvtx {
            child.env(wire::NVTX_VARIABLE, "1");
        }
        let filters = seccomp_filters();
        if filters > 0 {
            child.env(wire::FILTERS_VARIABLE, filters.to_string());
        }
    }
    if let Some(directory) = &injection.simulator {
        child.env("LD_LIBRARY_PATH", prepend(directory, std::env::var_os("LD_LIBRARY_PATH").as_deref()));
    }
    let user = user.cloned();
    if let Some(user) = &user {
        child.env("USER", &user.name).env("LOGNAME", &user.name);
        if let Some(home) = &user.home {
            child.env("HOME", home);
        }
    }
    let (mask, open_files) = (super::signals::original_mask(), super::limits::original());
    // SAFETY: between fork and exec only system calls are made; nothing is allocated.
    unsafe {
        child.pre_exec(move || {
            if let Some(user) = &user {
                become_user(user)?;
            }
            keep_own_capabilities();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            if let Some(limit) = &open_files {
                libc::setrlimit(libc::RLIMIT_NOFILE, limit);
            }
            if super::signals::pipe_was_ignored() {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            if !super::signals::file_size_was_ignored() {
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    child.spawn().map_err(|source| CannotRun { program: program.clone(), source })
}

/// Returns the number of seccomp filters that warpscope runs under, as in a container. The command inherits them.
fn seccomp_filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")?.trim().parse().ok()).unwrap_or(0)
}

fn prepend(directory: &Path, list: Option<&OsStr>) -> OsString {
    let mut result = directory.as_os_str().to_owned();
    if let Some(list) = list.filter(|l| !l.is_empty()) {
        result.push(":");
        result.push(list);
    }
    result
}

/// Ends a command for `--kill`.
#[derive(Debug)]
pub struct Ending {
    deadline: Instant,
}

impl Ending {
    /// The signals sent to the command, in order.
    pub const SIGNALS: [libc::c_int; 2] = [libc::SIGTERM, libc::SIGKILL];
    /// The time between the two.
    const TIMEOUT: Duration = Duration::from_secs(5);

    /// Requests the command to end.
    pub fn begin(child: &Child) -> Self {
        Self::send(child, libc::SIGTERM);
        Self { deadline: Instant::now() + Self::TIMEOUT }
    }

    /// Waits for it to end, and kills it after the timeout.
    pub fn wait(self, child: &mut Child, signals: &Signals) -> io::Result<ExitStatus> {
        if let Some(status) = signals.wait_until(child, Some(self.deadline))? {
            return Ok(status);
        }
        Self::send(child, libc::SIGKILL);
        signals.wait_for(child)
    }

    fn send(child: &Child, signal: libc::c_int) {
        // SAFETY: a plain kill of our own child, which has not been waited for yet.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    }
}

/// Exits like the command: with its exit code, or by its signal.
pub fn exit_like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // SAFETY: plain system calls that set limits and signal dispositions of this process. If the signal does not
        // kill, the function continues and returns the shell's code for it.
        unsafe {
            // The command has already written its core dump, if it was to write one.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(signal, libc::SIG_DFL);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            libc::raise(signal);
        }
        return ExitCode::from((128 + signal) as u8);
    }
    ExitCode::from(status.code().unwrap_or(1) as u8)
}
