//! Starts the zygote, and calls functions in workers.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsRawFd, OwnedFd, RawFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::OnceLock,
    time::{Duration, Instant},
};

use crate::{
    Plain, message, plain,
    worker::{Call, HEADER},
    zygote::{self, CAPABLE, NO_LANDLOCK, NO_SECCOMP, STILL_ROOT},
};

/// How long the zygote may take to fork a worker. The machine may be busy.
const FORK: Duration = Duration::from_secs(10);

/// The longest message, in characters.
const LONGEST_SENTENCE: usize = 300;

static ZYGOTE: OnceLock<Zygote> = OnceLock::new();

struct Zygote {
    control: OwnedFd,
    /// What it could not restrict.
    missing: OnceLock<Option<u8>>,
}

/// Limits on a call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long it may take.
    pub time: Duration,
    /// The most bytes of its answer.
    pub answer: u64,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The parser crashed, ran out of memory or was killed.
    Crashed,
    /// It took too long.
    Late(u64),
    /// Its answer is malformed, or too large.
    Malformed,
    /// There is no process to parse in.
    Gone,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crashed => f.write_str("the process that reads it crashed"),
            Self::Late(seconds) => write!(f, "reading it took longer than {seconds} s"),
            Self::Malformed => f.write_str("the process that reads it gave a malformed answer"),
            Self::Gone => f.write_str("the process that reads files was killed"),
        }
    }
}

/// Forks the zygote. From now on [`parse`] uses workers, which have at most `memory` bytes of address space.
///
/// Must be called before this process has threads: only the calling thread exists in a fork, and locks of others would never be
/// released.
pub fn start(memory: u64) -> io::Result<()> {
    let (control, theirs) = message::pair(libc::SOCK_SEQPACKET)?;
    // SAFETY: a plain system call.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the process has one thread, as documented.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => zygote::run(theirs, parent, memory),
        _ => {
            let _ = ZYGOTE.set(Zygote { control, missing: OnceLock::new() });
            Ok(())
        }
    }
}

/// Says which restrictions this kernel refuses to workers. `None` if there are none, or no workers.
pub fn missing() -> Option<String> {
    let bits = ZYGOTE.get()?.missing()?;
    let parts = [
        (STILL_ROOT, "they run as root"),
        (CAPABLE, "they have capabilities"),
        (NO_LANDLOCK, "the kernel has no landlock"),
        (NO_SECCOMP, "the kernel refuses a seccomp filter"),
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, text)| text).collect();
    (!parts.is_empty()).then(|| format!("the processes that read files are less restricted: {}", parts.join(", ")))
}

/// Returns a message of a worker, which is untrusted, in a form that can be shown.
pub fn sentence(message: &str) -> String {
    message.chars().filter(|c| !c.is_control()).take(LONGEST_SENTENCE).collect()
}

impl Zygote {
    /// Waits for its first message.
    fn missing(&self) -> Option<u8> {
        let read = || message::receive(self.control.as_raw_fd()).ok().flatten().map(|(missing, _)| missing);
        *self.missing.get_or_init(read)
    }
}

/// Calls `parser` with a request and files in a process without rights, and returns its answer. Everything in the answer is
/// untrusted.
pub fn parse<Q: Plain, A: Plain>(
    parser: fn(&Q, &[&File]) -> A,
    request: &Q,
    files: &[&File],
    limits: &Limits,
) -> Result<A, Failed> {
    let Some(zygote) = ZYGOTE.get() else {
        return catch_unwind(AssertUnwindSafe(|| parser(request, files))).map_err(|_| Failed::Crashed);
    };
    let end = Instant::now() + limits.time;
    let worker = Worker::fork(zygote, files)?;
    let answer = worker.call(call::<Q, A>, parser as usize, &plain::bytes(request), limits, end);
    if answer.is_err() {
        worker.kill();
    }
    plain::read(&answer?).ok_or(Failed::Malformed)
}

/// What a worker runs: the function at an address, with its types.
fn call<Q: Plain, A: Plain>(parser: usize, request: &[u8], files: &[&File]) -> Option<Vec<u8>> {
    // SAFETY: `parse` sends this function together with the address of one that has these types.
    let parser = unsafe { std::mem::transmute::<usize, fn(&Q, &[&File]) -> A>(parser) };
    Some(plain::bytes(&parser(&plain::read(request)?, files)))
}

/// A process for one call.
struct Worker {
    socket: OwnedFd,
    process: OwnedFd,
}

impl Worker {
    fn fork(zygote: &Zygote, files: &[&File]) -> Result<Self, Failed> {
        let (socket, theirs) = message::pair(libc::SOCK_STREAM).map_err(|_| Failed::Gone)?;
        message::set_timeout(&socket, FORK);
        let descriptors: Vec<RawFd> =
            [theirs.as_raw_fd()].into_iter().chain(files.iter().map(|file| file.as_raw_fd())).collect();
        message::send(zygote.control.as_raw_fd(), 0, &descriptors).map_err(|_| Failed::Gone)?;
        drop(theirs);
        // The worker writes nothing before it has its request, so this message is the zygote's.
        let (_, mut processes) = message::receive(socket.as_raw_fd()).ok().flatten().ok_or(Failed::Gone)?;
        Ok(Self { socket, process: processes.pop().ok_or(Failed::Gone)? })
    }

    fn call(
        &self,
        call: Call,
        parser: usize,
        request: &[u8],
        limits: &Limits,
        end: Instant,
    ) -> Result<Vec<u8>, Failed> {
        let late = || Failed::Late(limits.time.as_secs());
        let failed = |error: &io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => late(),
            _ => Failed::Crashed,
        };
        let mut socket = Timed { socket: &self.socket, end };
        let mut header = [0; HEADER];
        for (place, word) in header.chunks_exact_mut(8).zip([call as usize, parser, request.len()]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        socket.write_all(&header).and_then(|()| socket.write_all(request)).map_err(|error| failed(&error))?;
        let mut length = [0; 8];
        socket.read_exact(&mut length).map_err(|error| failed(&error))?;
        let length = u64::from_le_bytes(length);
        if length > limits.answer {
            return Err(Failed::Malformed);
        }
        let mut answer = Vec::new();
        // Memory grows with what arrives.
        let read = socket.take(length).read_to_end(&mut answer).map_err(|error| failed(&error))?;
        if read as u64 == length { Ok(answer) } else { Err(Failed::Crashed) }
    }

    fn kill(&self) {
        // SAFETY: a plain system call; the descriptor refers to the worker, also after it has ended.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.process.as_raw_fd(),
                libc::SIGKILL,
                std::ptr::null::<u8>(),
                0,
            )
        };
    }
}

/// A socket whose calls fail at the end of the time.
struct Timed<'a> {
    socket: &'a OwnedFd,
    end: Instant,
}

impl Timed<'_> {
    fn prepare(&self) -> io::Result<()> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // 0 would mean no limit.
        message::set_timeout(self.socket, left.max(Duration::from_millis(1)));
        Ok(())
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.prepare()?;
        // SAFETY: a buffer of the given length.
        let read = unsafe { libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.prepare()?;
        // SAFETY: bytes of the given length. A worker that has ended is no reason for a signal.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
