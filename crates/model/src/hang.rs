//! The ranks of a job that seems stuck: what their threads did while one host was watched for a moment.

use serde::{Deserialize, Serialize};

/// What `hang` has seen on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub host: String,
    /// The id of its current boot.
    pub boot: String,
    /// When it was watched, in nanoseconds since 1970.
    pub time_ns: u64,
    /// For how long.
    pub watched_ns: u64,
    /// The processes.
    pub processes: Vec<Process>,
    /// What could not be seen.
    pub notes: Vec<String>,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its short name.
    pub name: String,
    /// The file name of its executable.
    pub program: String,
    /// Its place in a distributed program, by its environment.
    #[serde(flatten)]
    pub place: RankPlace,
    /// It ended while it was watched.
    #[serde(default)]
    pub ended: bool,
    /// Its threads, the first one first.
    pub threads: Vec<Thread>,
}

/// The place of a process in a distributed program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlace {
    /// What all ranks of one program have in common, such as the address of the first one; empty if unknown.
    #[serde(default)]
    pub job: String,
    /// The rank.
    pub rank: Option<u32>,
    /// The number of ranks.
    pub world_size: Option<u32>,
    /// The rank among those of this host.
    pub local_rank: Option<u32>,
    /// The number of ranks of this host.
    pub local_world_size: Option<u32>,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// What it did at first.
    pub state: State,
    /// It ran while it was watched. Otherwise it stayed where it was.
    pub ran: bool,
    /// How many of its outermost frames were the same each time.
    pub kept: u32,
    /// How often the call that it was in at first returned; absent if that was not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<u64>,
    /// The stack reaches the outermost frame.
    pub whole: bool,
    /// Its stack at first, innermost frame first.
    pub frames: Vec<Frame>,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It runs, or could run.
    Running,
    /// It waits for a lock, or for another thread.
    Lock,
    /// It sleeps.
    Sleep,
    /// It waits for events: poll, epoll, select.
    Events,
    /// It waits for files or sockets.
    Io,
    /// It waits for a process.
    Process,
    /// It waits for a driver: ioctl.
    Driver,
    /// It waits for memory.
    Memory,
    /// It waits.
    #[default]
    Other,
}

/// A frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The function, of Python with its line: `load (train.py:31)`.
    pub name: String,
    /// The source file of a Python function, otherwise the program or library.
    pub file: String,
    /// It is a Python function.
    #[serde(default)]
    pub python: bool,
}
