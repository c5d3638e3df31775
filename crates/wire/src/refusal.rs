//! Why the injected library does nothing in a process.

/// A reason. It is passed to the marker in place of the kind of work: the probe sees it without any system call of the
/// process's. The marker's first argument is then an error number, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A seccomp filter may kill the process for a system call of ours.
    Seccomp = 1,
    /// No socket could be made.
    Socket = 2,
    /// No connection to warpscope could be made.
    Connect = 3,
    /// The socket belongs to neither root nor the process's user, as the process sees it.
    Peer = 4,
    /// No memory for buffers.
    Memory = 5,
    /// Exit and fork cannot be watched.
    Exit = 6,
    /// No thread could be made.
    Thread = 7,
    /// The program runs with more rights than its caller.
    Secure = 8,
    /// The environment does not say where to connect.
    NoAddress = 9,
}

impl Refusal {
    /// Kinds of work from here on are reasons.
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

    /// What the marker gets.
    pub fn work(self) -> u32 {
        Self::BASE + self as u32
    }

    /// The reason that the marker got, if it is one.
    pub fn from_work(work: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.work() == work)
    }
}
