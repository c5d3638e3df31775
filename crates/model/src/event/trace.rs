//! Events that only a trace contains: calls of functions, system calls, context switches.

use cuda::calls::KernelRef;
use serde::Serialize;

use super::{ProcessId, SessionId, StackId};

/// A callable: a library function, a request to a driver, a tracepoint. Ids are dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct FunctionId(pub u32);

/// Declares a callable, before its first call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its id in this recording.
    pub id: FunctionId,
    /// Its layer.
    pub layer: Layer,
    /// Where it belongs: a library's path, a device file's name, a tracepoint's category.
    pub library: String,
    /// Its name.
    pub name: String,
    /// The user requested it; other functions are watched only to learn names.
    pub shown: bool,
    /// The names of its arguments, for a function of the operating system's kernel with a known type.
    pub parameters: Vec<String>,
    /// By its type, it returns nothing.
    pub void: bool,
}

/// The layer of a function.
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
    /// A tracepoint, which has no duration.
    Point = 3,
}

impl Layer {
    /// Returns the layer with this number.
    pub fn from_number(number: u8) -> Self {
        [Self::Library, Self::Driver, Self::Kernel, Self::Point].get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The function called.
    pub function: FunctionId,
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// The CPU it began on.
    pub cpu: u32,
    /// Traced calls around it.
    pub depth: u8,
    /// One of those does the same for the program (a driver launch within a runtime launch), so this call is not
    /// counted again.
    pub nested: bool,
    /// One of those returns a status of its own, so an error of this call is counted there.
    pub enclosed: bool,
    /// Entry.
    pub start: u64,
    /// Return; 0 if it had not returned when its thread or the trace ended.
    pub end: u64,
    /// Its return value.
    pub result: u64,
    /// The value that it wrote through a pointer argument.
    pub out: Option<u64>,
    /// The launch that was made in it.
    pub launch: Option<(SessionId, u32)>,
    /// The launch belongs to this call, not to a call around it.
    pub launches: bool,
    /// When the innermost call around it began, which identifies that call on its thread; 0 if there is none.
    pub around: u64,
    /// The caller's stack, if it was collected.
    pub stack: Option<StackId>,
    /// The raw arguments.
    pub words: Vec<u64>,
    /// The data that one of them pointed to.
    pub payload: Vec<u8>,
}

impl Call {
    /// Returns its duration; `None` if it did not return.
    pub fn duration(&self) -> Option<u64> {
        (self.end != 0).then(|| self.end.saturating_sub(self.start))
    }
}

/// An off-CPU interval of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// The CPU it resumed on.
    pub cpu: u32,
    /// Traced calls around it.
    pub depth: u8,
    /// When it was switched out.
    pub start: u64,
    /// When it was switched in again.
    pub end: u64,
    /// It was preempted while runnable.
    pub preempted: bool,
    /// Its `TASK_*` state when it was switched out.
    pub state: u32,
    /// Its stack then, if it was taken.
    pub stack: Option<StackId>,
    /// When the innermost call around it began; 0 if there is none.
    pub around: u64,
}

/// Calls of one function that were summed up in the kernel, in a trace without events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The function called.
    pub function: FunctionId,
    /// The image.
    pub process: ProcessId,
    /// The argument by which sums are separated (the direction of copies); 0 where there is none.
    pub class: u32,
    /// Nested in calls that do the same.
    pub nested: bool,
    /// Calls.
    pub count: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Total time.
    pub ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Bytes of the successful calls.
    pub bytes: u64,
    /// Total time without that of nested calls.
    pub self_ns: u64,
    /// Time of those not nested in another call of their tier.
    pub outer_ns: u64,
    /// Calls by duration, in the buckets of [`crate::histogram`].
    pub buckets: Vec<u64>,
}

/// Failed calls that were counted in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSum {
    /// The function called.
    pub function: FunctionId,
    /// The result.
    pub code: u32,
    /// Nested in calls that return a status of their own: the error is counted there.
    pub enclosed: bool,
    /// Calls.
    pub count: u64,
}

/// Memory of one kind: allocations, frees, and what is live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Frees that succeeded.
    pub frees: u64,
    /// Frees that failed.
    pub failed_frees: u64,
    /// Of the successful frees: those of memory whose allocation was not seen.
    pub unknown_frees: u64,
    /// Allocations whose address was reused although no free of it was seen.
    pub missed_frees: u64,
    /// Allocations that were released with their context or device.
    pub released: u64,
    /// Allocations that are not tracked because the table was full.
    pub untracked: u64,
    /// Allocations not freed by the end of the trace, or of their process.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// The most bytes live at one time.
    pub peak_bytes: u64,
}

/// Memory of one kind in one process, as counted in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySum {
    /// The image.
    pub process: ProcessId,
    /// The kind of memory: the number of a [`cuda::calls::Space`].
    pub space: u8,
    /// Allocations and frees.
    pub memory: Memory,
}

/// Launches of one kernel that were counted in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSum {
    /// The image.
    pub process: ProcessId,
    /// The kernel; `None` for launches of kernels that did not fit into the table.
    pub kernel: Option<KernelRef>,
    /// Launches that succeeded.
    pub count: u64,
}
