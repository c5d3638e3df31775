//! Signals as data: blocked, and read from a descriptor together with everything else.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::OnceLock,
};

/// The signals we take: the end of the command, and wishes to stop.
const TAKEN: [libc::c_int; 5] = [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

static ORIGINAL: OnceLock<libc::sigset_t> = OnceLock::new();

/// The signal mask that warpscope was started with: the command starts with the same.
pub fn original_mask() -> libc::sigset_t {
    ORIGINAL.get().copied().unwrap_or_else(|| {
        // SAFETY: an all-zero set is a valid empty set.
        unsafe { MaybeUninit::zeroed().assume_init() }
    })
}

/// A descriptor that delivers signals.
#[derive(Debug)]
pub struct Signals(OwnedFd);

/// One signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A child changed state.
    Child,
    /// The terminal sent it, to the command as well.
    Terminal,
    /// Somebody sent it to us alone: it is meant for the command.
    Sent(libc::c_int),
}

impl Signals {
    /// Blocks the signals and takes them from here on.
    pub fn take() -> io::Result<Self> {
        // SAFETY: sets are initialised before use; the descriptor is new and ours.
        unsafe {
            let mut set = MaybeUninit::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            for signal in TAKEN {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let set = set.assume_init();
            let mut original = MaybeUninit::uninit();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, original.as_mut_ptr());
            let _ = ORIGINAL.set(original.assume_init());
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// To wait on.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The next signal that has come.
    pub fn next(&self) -> Option<Signal> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size of one record; it is read only if the whole record was written.
        let info = unsafe {
            if libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) != size as isize {
                return None;
            }
            info.assume_init()
        };
        let signal = info.ssi_signo as libc::c_int;
        Some(if signal == libc::SIGCHLD {
            Signal::Child
        } else if info.ssi_code == libc::SI_KERNEL {
            Signal::Terminal
        } else {
            Signal::Sent(signal)
        })
    }
}
