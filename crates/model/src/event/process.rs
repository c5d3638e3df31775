//! Processes, their threads and what they have mapped.

use serde::Serialize;

use super::ProcessId;

/// A process image appears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id here.
    pub id: ProcessId,
    /// The image it was forked or exec'ed from; 0 if that is not in the recording.
    pub parent: ProcessId,
    /// How it came to be.
    pub origin: Origin,
    /// The pid.
    pub pid: u32,
    /// When.
    pub time: u64,
    /// The kernel's short name of it.
    pub comm: String,
}

/// How a process image came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[repr(u8)]
pub enum Origin {
    /// It was there already.
    #[default]
    Found = 0,
    /// Forked: it has its parent's mappings of that moment.
    Fork = 1,
    /// A new program in an old process: it has no mapping but its own.
    Exec = 2,
}

impl Origin {
    /// The origin with this number.
    pub fn from_number(number: u8) -> Self {
        [Self::Found, Self::Fork, Self::Exec].get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// A thread gets a name (also at its birth, and again when it changes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process image.
    pub process: ProcessId,
    /// The thread's id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
}

/// A process image ends, by exit or exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The image.
    pub process: ProcessId,
    /// When.
    pub time: u64,
}

/// The bits that an address of a process has. Above them is a number where an address has belonged to several files, one after
/// another: 0 for the first.
pub const ADDRESS: u64 = (1 << 48) - 1;

/// A file is mapped into a process, executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The image.
    pub process: ProcessId,
    /// When.
    pub time: u64,
    /// First address; see [`ADDRESS`].
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset in the file of the first address.
    pub offset: u64,
    /// The file as the process names it, or `[vdso]` and the like.
    pub path: String,
    /// The file's build id, if it is known.
    pub build_id: Vec<u8>,
}
