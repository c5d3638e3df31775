//! Samples of the counters of GPUs, from the process that takes them ([`crate::pm`]).
//!
//! With `--stalls`, this process also finds out whether the counters are free: if another process uses them, PC
//! sampling would silence CUPTI in the recorded one (`inject/src/stalls.rs`).

mod choice;
mod reader;
mod reasons;

use std::{
    env,
    fs::File,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use model::event::{Event, Loss, LossCause, Note};
use sandbox::user::become_user;

pub use self::choice::Choice;
use self::reader::{Broken, Reader};
use crate::pm::{
    process::{CHECK, DRIVER, SAMPLE, SCRIPT, SIMULATED, VISIBLE},
    record::{self, Record},
};

/// How long the process may take until it samples. On an H200 it takes about a second.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a check may take. On an H200 it takes 0.15 to 0.3 s.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take for its last samples.
const LAST_SAMPLES: Duration = Duration::from_secs(5);
/// How long it may take after them.
const EXIT: Duration = Duration::from_secs(2);
/// The capacity of the pipe: 10 s of samples of one GPU.
const PIPE: libc::c_int = 1 << 20;
/// The most bytes that are read at a time, so that nothing else waits long.
const AT_ONCE: usize = 256 << 10;

/// A process that samples.
pub struct Sampler {
    child: Child,
    /// Closing it ends the process.
    stdin: Option<ChildStdin>,
    pipe: File,
    reader: Reader,
    /// CPU time of the process, once it has ended.
    cpu_ns: u64,
    state: State,
}

/// What failed, and for which GPU if not for all.
type Failures = Vec<(Option<u8>, record::Failure)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    /// It has written its last record.
    Ended,
    /// It is gone without one.
    Gone,
}

impl Sampler {
    /// Starts the process, and waits until it samples. Events go to `push`; the error says why there are no samples.
    pub fn start(choice: &Choice, push: &mut dyn FnMut(Event)) -> Result<Self, String> {
        let mut sampler = Self::spawn(choice, SAMPLE)?;
        let failures = sampler.wait_until_ready(choice, PATIENCE, push)?;
        match failures.first() {
            Some((_, failure)) if sampler.reader.gpus() == 0 => Err(reasons::text(*failure, choice)),
            None if sampler.reader.gpus() == 0 => Err("CUDA reports no GPU".into()),
            _ => {
                for (gpu, failure) in failures {
                    let gpu = gpu.map_or_else(String::new, |gpu| format!(" of GPU {gpu}"));
                    let text = format!("counters{gpu} were not recorded: {}", reasons::text(failure, choice));
                    push(Event::Note(Note { text }));
                }
                Ok(sampler)
            }
        }
    }

    fn spawn(choice: &Choice, what: &str) -> Result<Self, String> {
        let program = |error: io::Error| format!("cannot start a process for PM sampling: {error}");
        let mut child = command(choice, what).spawn().map_err(program)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let pipe: OwnedFd = stdout.map(OwnedFd::from).ok_or("PM sampling has no pipe")?;
        // SAFETY: plain system calls on our own descriptor. A smaller pipe is enough for most.
        unsafe {
            libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE);
            let flags = libc::fcntl(pipe.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        let (reader, state) = (Reader::default(), State::Runs);
        Ok(Self { child, stdin, pipe: pipe.into(), reader, cpu_ns: 0, state })
    }

    /// Waits until every GPU has been tried, and returns what failed. The error says why none was tried.
    fn wait_until_ready(
        &mut self,
        choice: &Choice,
        patience: Duration,
        push: &mut dyn FnMut(Event),
    ) -> Result<Failures, String> {
        let deadline = Instant::now() + patience;
        let mut failures = Vec::new();
        while !self.reader.ready {
            self.read(push, &mut failures)?;
            if let Some((None, failure)) = failures.first() {
                return Err(reasons::text(*failure, choice));
            }
            if self.state != State::Runs && !self.reader.ready {
                return Err(reasons::gone(self.end()));
            }
            if Instant::now() >= deadline {
                return Err(format!("PM sampling did not begin within {} s", patience.as_secs()));
            }
            if !self.reader.ready {
                self.wait(Duration::from_millis(100));
            }
        }
        Ok(failures)
    }

    /// Passes on the samples since the last call; does not wait.
    pub fn take(&mut self, push: &mut dyn FnMut(Event)) {
        if self.state != State::Runs {
            return;
        }
        let mut failures = Vec::new();
        let end = match self.read(push, &mut failures) {
            Ok(()) if self.state == State::Gone => Some(reasons::gone(self.end())),
            Ok(()) => None,
            Err(why) => {
                self.end();
                self.state = State::Gone;
                Some(why)
            }
        };
        let failed = failures.iter().map(|(_, failure)| reasons::ended(*failure));
        for why in failed.chain(end) {
            push(Event::Note(Note { text: format!("counters end before the recording: {why}") }));
        }
    }

    /// Waits for the last samples, and passes them on.
    pub fn finish(&mut self, push: &mut dyn FnMut(Event)) {
        drop(self.stdin.take());
        let deadline = Instant::now() + LAST_SAMPLES;
        while self.state == State::Runs {
            self.take(push);
            if Instant::now() >= deadline {
                let text = format!(
                    "the last counters are missing: the process that samples them did not end within {} s",
                    LAST_SAMPLES.as_secs()
                );
                push(Event::Note(Note { text }));
                break;
            }
            self.wait(Duration::from_millis(100));
        }
        self.end();
        self.state = State::Gone;
    }

    /// Returns the CPU time of the process, once it has ended.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Reads what is in the pipe.
    fn read(&mut self, push: &mut dyn FnMut(Event), failures: &mut Failures) -> Result<(), String> {
        let mut on = |record: Record| match record {
            Record::Failed { gpu, failure } => failures.push((gpu, failure)),
            Record::Overflow { .. } => push(Event::Loss(Loss { cause: LossCause::CounterOverflows, count: 1 })),
            Record::Dropped { count } => push(Event::Loss(Loss { cause: LossCause::CounterSamples, count })),
            _ => {}
        };
        match self.reader.read(&mut self.pipe, AT_ONCE, &mut on) {
            Ok(()) if self.reader.ended => self.state = State::Ended,
            Ok(()) => {}
            Err(Broken::Gone) => self.state = State::Gone,
            Err(Broken::Invalid) => {
                return Err("the process that samples them wrote something that is not a sample".into());
            }
        }
        self.reader.samples(push);
        Ok(())
    }

    fn wait(&self, longest: Duration) {
        let mut wait = libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&mut wait, 1, longest.as_millis() as libc::c_int) };
    }

    /// Ends the process if it runs. Returns its exit status, unless it was returned before.
    fn end(&mut self) -> Option<ExitStatus> {
        if self.stdin.is_none() && self.cpu_ns > 0 {
            return None;
        }
        drop(self.stdin.take());
        // After its last record it gives the counters back and exits. A process that is gone keeps its status.
        if self.state == State::Ended {
            self.wait(EXIT);
        }
        if self.state != State::Gone {
            let _ = self.child.kill();
        }
        let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
        // SAFETY: our own child, and buffers for the results; all zeroes is a valid value. `Child` is not waited for again.
        let usage = unsafe {
            let pid = self.child.id() as libc::pid_t;
            while libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            usage.assume_init()
        };
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        self.cpu_ns = (ns(usage.ru_utime) + ns(usage.ru_stime)).max(1);
        Some(ExitStatus::from_raw(status))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says what to do if another tool uses the counters of a GPU. `None` if none does, or if that is not known.
pub fn used_by_others(choice: &Choice) -> Option<String> {
    let mut sampler = Sampler::spawn(choice, CHECK).ok()?;
    let failures = sampler.wait_until_ready(choice, CHECK_PATIENCE, &mut |_| {}).ok()?;
    let busy = failures.into_iter().find(|(_, failure)| failure.code == cupti::ids::result::HARDWARE_BUSY);
    busy.map(|(_, failure)| reasons::text(failure, choice))
}

/// Returns the command that samples or checks: this program, which decides what it loads with whose rights.
fn command(choice: &Choice, what: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(what).arg(if choice.simulated { SIMULATED } else { DRIVER }).args(&choice.library);
    // Counters are sampled on all GPUs, but a check is about those that the program sees.
    let script = env::var_os(SCRIPT).filter(|_| choice.simulated).map(|script| (SCRIPT, script));
    let visible = env::var_os(VISIBLE).filter(|_| what == CHECK).map(|devices| (VISIBLE, devices));
    command.env_clear().envs(script.into_iter().chain(visible));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(user) = choice.user.clone() {
        // SAFETY: between fork and exec only system calls are made; nothing is allocated.
        unsafe { command.pre_exec(move || become_user(&user)) };
    }
    command
}
