//! Processes, their threads and their mappings.

use serde::Serialize;

use super::ProcessId;

/// A process image was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id in this recording.
    pub id: ProcessId,
    /// The image that it was forked or exec'ed from; 0 if that image is not in the recording.
    pub parent: ProcessId,
    /// How it was created.
    pub origin: Origin,
    /// The pid.
    pub pid: u32,
    /// When it was created.
    pub time: u64,
    /// Its short name in the kernel (comm).
    pub comm: String,
}

/// How a process image was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[repr(u8)]
pub enum Origin {
    /// It existed before the recording started.
    #[default]
    Found = 0,
    /// Forked: it starts with its parent's mappings at that time.
    Fork = 1,
    /// Exec'ed in an existing process: it has only its own mappings.
    Exec = 2,
}

impl Origin {
    /// Returns the origin with this number.
    pub fn from_number(number: u8) -> Self {
        [Self::Found, Self::Fork, Self::Exec].get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// The name of a thread, at its creation and whenever it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process image.
    pub process: ProcessId,
    /// The thread's id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
}

/// A process image ended, by exit or exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The image.
    pub process: ProcessId,
    /// When it ended.
    pub time: u64,
}

/// The address bits of a process. If several files in turn were mapped at an address, the bits above number them: 0 for
/// the first.
pub const ADDRESS: u64 = (1 << 48) - 1;

/// A file was mapped as executable into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The image.
    pub process: ProcessId,
    /// When it was mapped.
    pub time: u64,
    /// First address; see [`ADDRESS`].
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// File offset of the first address.
    pub offset: u64,
    /// The path of the file as seen by the process, or `[vdso]` and the like.
    pub path: String,
    /// The file's build id, if known.
    pub build_id: Vec<u8>,
}
