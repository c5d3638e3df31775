//! Signals as data: blocked, and read from a descriptor together with everything else.

use std::{
    cell::{Cell, RefCell},
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    process::{Child, ExitStatus},
    sync::OnceLock,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

/// The signals that are handled: the end of the command, and requests to stop.
const HANDLED: [libc::c_int; 5] = [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

static ORIGINAL: OnceLock<libc::sigset_t> = OnceLock::new();

/// Returns the signal mask that warpscope was started with: the command starts with the same.
pub fn original_mask() -> libc::sigset_t {
    ORIGINAL.get().copied().unwrap_or_else(|| {
        // SAFETY: an all-zero set is a valid empty set.
        unsafe { MaybeUninit::zeroed().assume_init() }
    })
}

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static FILE_SIZE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Whether warpscope was started with SIGPIPE ignored: the command starts with the same. Rust's runtime ignores it
/// before `main`, and resets it to the default for a command, so it must be read earlier.
pub fn pipe_was_ignored() -> bool {
    PIPE_IGNORED.load(Ordering::Relaxed)
}

/// Whether warpscope was started with SIGXFSZ ignored: the command starts with the same. warpscope ignores it, so that
/// a file size limit (`ulimit -f`) causes a failed write, like a full disk, instead of killing it.
pub fn file_size_was_ignored() -> bool {
    FILE_SIZE_IGNORED.load(Ordering::Relaxed)
}

extern "C" fn before_main() {
    // SAFETY: sets one disposition and reads two; an all-zero action is valid.
    unsafe {
        let ignored = |signal| {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init().sa_sigaction == libc::SIG_IGN
        };
        PIPE_IGNORED.store(ignored(libc::SIGPIPE), Ordering::Relaxed);
        FILE_SIZE_IGNORED.store(ignored(libc::SIGXFSZ), Ordering::Relaxed);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

// SAFETY: the loader calls this before `main` in every program: a function pointer to a function that needs nothing of
// Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// Requests a dump of the flight recorder.
pub const DUMP: libc::c_int = libc::SIGUSR1;

/// A descriptor that delivers signals.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
    /// A dump was requested.
    dump: Cell<bool>,
    /// A stop was requested.
    stop: Cell<bool>,
    /// And once more, at the end.
    again: Cell<bool>,
    /// Signals for the command that have been read and not been passed on.
    held: RefCell<Vec<libc::c_int>>,
}

/// One signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A child changed state.
    Child,
    /// Requests a dump.
    Dump,
    /// Sent by the terminal, which sends it to the command as well.
    Terminal,
    /// Sent to warpscope alone: it is meant for the command.
    Sent(libc::c_int),
}

impl Signals {
    /// Blocks the signals and opens the descriptor.
    pub fn take() -> io::Result<Self> {
        Self::take_these(&HANDLED)
    }

    /// The same, with the signal that requests a dump.
    pub fn take_with_dumps() -> io::Result<Self> {
        Self::take_these(&[&HANDLED[..], &[DUMP]].concat())
    }

    fn take_these(signals: &[libc::c_int]) -> io::Result<Self> {
        // SAFETY: sets are initialised before use; the descriptor is new and ours.
        unsafe {
            let mut set = MaybeUninit::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            let set = set.assume_init();
            let mut original = MaybeUninit::uninit();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, original.as_mut_ptr());
            let _ = ORIGINAL.set(original.assume_init());
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let (dump, stop, again) = (Cell::new(false), Cell::new(false), Cell::new(false));
            let held = RefCell::new(Vec::new());
            Ok(Self { descriptor: OwnedFd::from_raw_fd(fd), dump, stop, again, held })
        }
    }

    /// Returns the descriptor to wait on.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Forwards signals sent to warpscope alone to the command.
    pub fn pass_on(&self, child: &Child) {
        while self.read().is_some() {}
        for number in self.held.take() {
            // SAFETY: a plain kill of our own child, which has not been waited for yet.
            unsafe { libc::kill(child.id() as libc::pid_t, number) };
        }
    }

    /// Returns the next signal. If it is meant for the command, it is kept for that.
    fn read(&self) -> Option<Signal> {
        let signal = self.next()?;
        if let Signal::Sent(number) = signal {
            self.held.borrow_mut().push(number);
        }
        Some(signal)
    }

    /// Whether a stop was ever requested, by a signal or the terminal; used without a command to forward signals to.
    pub fn stop_requested(&self) -> bool {
        while let Some(signal) = self.next() {
            if !matches!(signal, Signal::Child | Signal::Dump) {
                self.stop.set(true);
            }
        }
        self.stop.get()
    }

    /// Begins the end of a recording: the signals so far request no other stop.
    pub fn begin_end(&self) {
        while self.read().is_some() {}
    }

    /// Whether a signal has requested a stop since [`Self::begin_end`].
    pub fn stop_requested_again(&self) -> bool {
        while let Some(signal) = self.read() {
            if !matches!(signal, Signal::Child | Signal::Dump) {
                self.again.set(true);
            }
        }
        self.again.get()
    }

    /// Whether a dump was requested since the last call.
    pub fn dump_requested(&self) -> bool {
        self.dump.take()
    }

    /// Waits for the command to end, at most until `deadline`, and forwards signals meanwhile. `None` if it is still
    /// running.
    pub fn wait_until(&self, child: &mut Child, deadline: Option<Instant>) -> io::Result<Option<ExitStatus>> {
        loop {
            self.pass_on(child);
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let milliseconds = left.map_or(-1, |left| left.as_millis() as libc::c_int + 1);
            let mut wait_on = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor of our own. The end of the command also arrives as a signal.
            unsafe { libc::poll(&raw mut wait_on, 1, milliseconds) };
        }
    }

    /// Waits for the command to end, without a time limit.
    pub fn wait_for(&self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.wait_until(child, None)? {
                return Ok(status);
            }
        }
    }

    /// Returns the next pending signal.
    fn next(&self) -> Option<Signal> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size of one record; it is read only if the whole record was written.
        let info = unsafe {
            if libc::read(self.descriptor.as_raw_fd(), info.as_mut_ptr().cast(), size) != size as isize {
                return None;
            }
            info.assume_init()
        };
        let signal = info.ssi_signo as libc::c_int;
        Some(if signal == libc::SIGCHLD {
            Signal::Child
        } else if signal == DUMP {
            self.dump.set(true);
            Signal::Dump
        } else if info.ssi_code == libc::SI_KERNEL {
            Signal::Terminal
        } else {
            Signal::Sent(signal)
        })
    }
}
