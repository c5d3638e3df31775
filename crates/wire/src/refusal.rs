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
}

impl Refusal {
    /// Kinds of work from this value on are reasons.
    pub const BASE: u32 = 0xff00;

    const ALL: [Self; 9] = [
        Self::Seccomp,
        Self::Socket,
        Self::Connect,
        Self::Peer,
        Self::Memory,
        Self::Exit,
        Self::Thread,
        Self::Secure,
        Self::NoAddress,
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
