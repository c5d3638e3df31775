//! Why the injected library is inactive in a process.

/// A reason. It is passed to the marker in place of the kind of work: the probe sees it although the process makes no
/// system call. The marker's first argument is then an error number, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A seccomp filter may kill the process for one of our system calls.
    Seccomp = 1,
    /// The socket could not be created.
    Socket = 2,
    /// The connection to warpscope failed.
    Connect = 3,
    /// The socket belongs to neither root nor the process's user, as seen by the process.
    Peer = 4,
    /// No memory for buffers.
    Memory = 5,
    /// The exit and fork handlers could not be registered.
    Exit = 6,
    /// The thread could not be created.
    Thread = 7,
    /// The program runs with more privileges than its caller.
    Secure = 8,
    /// The socket's path is missing in the environment.
    NoAddress = 9,
    /// The process has a session already.
    Busy = 10,
}

impl Refusal {
    /// Kinds of work from this value on are reasons.
    pub const BASE: u32 = 0xff00;

    const ALL: [Self; 10] = [
        Self::Seccomp,
        Self::Socket,
        Self::Connect,
        Self::Peer,
        Self::Memory,
        Self::Exit,
        Self::Thread,
        Self::Secure,
        Self::NoAddress,
        Self::Busy,
    ];

    /// Returns the value for the marker.
    pub fn work(self) -> u32 {
        Self::BASE + self as u32
    }

    /// Returns the reason in a marker's value, if it is one.
    pub fn from_work(work: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.work() == work)
    }
}

/// The function of the injected library that starts a session in a running process:
/// `extern "C" fn(settings: *const u8, size: usize) -> u64`. The settings are `NAME=VALUE`, separated by 0, with the names of
/// the variables in the environment of a command. The result is for [`attached`].
pub const ATTACH_SYMBOL: &str = "warpscope_attach";

/// Returns the result for a session that was not started.
pub fn not_attached(refusal: Refusal, error: u32) -> u64 {
    u64::from(refusal.work()) << 32 | u64::from(error)
}

/// Reads the result: the descriptor in the process that is warpscope's end of the connection, or the reason and an error
/// number. Anything else is `None`.
pub fn attached(result: u64) -> Option<Result<u32, (Refusal, u32)>> {
    let (high, low) = ((result >> 32) as u32, result as u32);
    match high {
        0 => Some(Ok(low)),
        work => Refusal::from_work(work).map(|refusal| Err((refusal, low))),
    }
}
