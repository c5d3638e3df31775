//! What a trace contains besides: calls of functions, system calls, switches.

use cuda::calls::KernelRef;
use serde::Serialize;

use super::{ProcessId, SessionId, StackId};
use crate::calls::Memory;

/// Something that can be called: a function of a library, a request to a driver, a tracepoint. Numbers are dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct FunctionId(pub u32);

/// Something that can be called appears. It comes before its first call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its id here.
    pub id: FunctionId,
    /// What it is.
    pub layer: Layer,
    /// Where it belongs: a library's path, a device file's name, a tracepoint's category.
    pub library: String,
    /// Its name.
    pub name: String,
    /// Whoever traces asked for it; others are watched for what they teach of names.
    pub shown: bool,
    /// The names of its arguments, of a function of the kernel that has a type.
    pub parameters: Vec<String>,
    /// Its type says that it returns nothing.
    pub void: bool,
}

/// What a function is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// A function of a library or program.
    #[default]
    Library = 0,
    /// A system call on a driver's device file.
    Driver = 1,
    /// A function of the operating system's kernel.
    Kernel = 2,
    /// A tracepoint: it takes no time.
    Point = 3,
}

impl Layer {
    /// The layer with this number.
    pub fn from_number(number: u8) -> Self {
        [Self::Library, Self::Driver, Self::Kernel, Self::Point].get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Of what.
    pub function: FunctionId,
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// The CPU it began on.
    pub cpu: u32,
    /// Watched calls around it.
    pub depth: u8,
    /// One of those does the same for the program (a driver's launch in the runtime's): it is not counted again.
    pub nested: bool,
    /// One of those returns a status of its own: an error of this call is counted as that one's.
    pub enclosed: bool,
    /// Entry.
    pub start: u64,
    /// Return; 0 if it had not returned when its thread or the trace ended.
    pub end: u64,
    /// What it returned.
    pub result: u64,
    /// What it wrote where an argument pointed.
    pub out: Option<u64>,
    /// The launch that was made in it.
    pub launch: Option<(SessionId, u32)>,
    /// The launch is its own, not that of a call around it.
    pub launches: bool,
    /// When the innermost call around it began, which identifies that call on its thread; 0 if there is none.
    pub around: u64,
    /// The caller's stack, if it was taken.
    pub stack: Option<StackId>,
    /// Arguments, as they were gathered.
    pub words: Vec<u64>,
    /// What one of them pointed to.
    pub payload: Vec<u8>,
}

impl Call {
    /// How long it took; `None` if it did not return.
    pub fn duration(&self) -> Option<u64> {
        (self.end != 0).then(|| self.end.saturating_sub(self.start))
    }
}

/// A thread was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// The CPU it came back to.
    pub cpu: u32,
    /// Watched calls around it.
    pub depth: u8,
    /// When it left.
    pub start: u64,
    /// When it came back.
    pub end: u64,
    /// It could have run on, and had to give way.
    pub preempted: bool,
    /// The kernel's `TASK_*` state in which it left.
    pub state: u32,
    /// When the innermost call around it began; 0 if there is none.
    pub around: u64,
}

/// Calls of one function that were summed up in the kernel, in a trace without events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Of what.
    pub function: FunctionId,
    /// The image.
    pub process: ProcessId,
    /// The argument by which the sums are kept apart (the direction of copies), 0 where there is none.
    pub class: u32,
    /// Within calls that do the same.
    pub nested: bool,
    /// Calls.
    pub count: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Their time.
    pub ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Their time without that of calls within them.
    pub self_ns: u64,
    /// The time of those that are not within another call of their tier.
    pub outer_ns: u64,
    /// Calls by duration, as [`crate::histogram`] divides them.
    pub buckets: Vec<u64>,
}

/// Failed calls that were counted in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSum {
    /// Of what.
    pub function: FunctionId,
    /// The result.
    pub code: u32,
    /// Within calls that return a status of their own: the error is counted there.
    pub enclosed: bool,
    /// Calls.
    pub count: u64,
}

/// Memory of one kind that a process had, as counted in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySum {
    /// The image.
    pub process: ProcessId,
    /// What kind it is: the number of a [`cuda::calls::Space`].
    pub space: u8,
    /// What came and went.
    pub memory: Memory,
}

/// Launches of one kernel that were counted in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSum {
    /// The image.
    pub process: ProcessId,
    /// Which kernel; `None` for those for which there was no room.
    pub kernel: Option<KernelRef>,
    /// Launches that succeeded.
    pub count: u64,
}
