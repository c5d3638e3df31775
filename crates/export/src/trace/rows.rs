//! The rows of a trace's tables.

use model::{
    calls::{Moved, Switches, Tier},
    event::Layer,
};
use serde::Serialize;

/// Calls of one layer: of the program, of CUDA's runtime and driver, to the kernel's driver, in the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct LayerRow {
    /// The layer.
    pub layer: Tier,
    /// Calls that returned.
    pub calls: u64,
    /// Time in which such a call was under way, added over threads.
    pub total_ns: u64,
    /// Of this, outside other traced calls within them. Over all layers, this adds up to the time in calls.
    pub self_ns: u64,
}

/// What was asked of the driver in all: system calls on its device files.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DriverRequests {
    /// How many.
    pub count: u64,
    /// Their time.
    pub ns: u64,
}

/// All calls of one function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionRow {
    /// The function.
    pub name: String,
    /// The file name of its library.
    pub library: String,
    /// What it is.
    pub layer: Layer,
    /// Calls that returned.
    pub calls: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Of these, within other traced calls, whose time includes theirs.
    pub inner: u64,
    /// Their time.
    pub ns: u64,
    /// Of this, outside other traced calls within them.
    pub self_ns: u64,
    /// The mean of it.
    pub mean_ns: u64,
    /// Half took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Bytes that they allocated, copied or set.
    pub bytes: u64,
    /// Durations: from how many nanoseconds on, how many calls.
    pub histogram: Vec<(u64, u64)>,
}

/// Requests of one kind to one device.
#[derive(Clone, Debug, Serialize)]
pub struct RequestRow {
    /// The device file.
    pub device: String,
    /// The request or system call.
    pub request: String,
    /// The command that it carries, or the class that it allocates; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// How many.
    pub count: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Their time.
    pub ns: u64,
    /// The mean of it.
    pub mean_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Hits of one tracepoint.
#[derive(Clone, Debug, Serialize)]
pub struct PointRow {
    /// Its category.
    pub category: String,
    /// Its name.
    pub name: String,
    /// How many.
    pub count: u64,
}

/// Calls that failed alike.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorRow {
    /// The function.
    pub function: String,
    /// The error's name.
    pub error: String,
    /// Its number.
    pub code: i64,
    /// Calls. Of one that failed because a call within it did, only the outer one is counted.
    pub count: u64,
    /// Calls within others that return a status of their own.
    pub enclosed: u64,
}

/// Launches of one kernel.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchRow {
    /// The kernel.
    pub kernel: String,
    /// Launches.
    pub count: u64,
}

/// Memory of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryRow {
    /// What kind it is.
    pub space: &'static str,
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
    /// Of the frees that succeeded: those of memory whose allocation was not seen.
    pub unknown_frees: u64,
    /// Allocations whose address was given out again, though no free of it was seen.
    pub missed_frees: u64,
    /// Allocations that were released with their context or device.
    pub released: u64,
    /// Allocations that are not tracked, because there was no room.
    pub untracked: u64,
    /// Allocations never freed.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// The most bytes at a time; where calls were only summed up, the most of one process.
    pub peak_bytes: u64,
}

/// Bytes moved by calls.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MovedRow {
    /// From where to where.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub direction: String,
    /// Calls.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time in the calls.
    pub ns: u64,
}

/// Times off the CPU, added over threads.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchRow {
    /// How often.
    pub count: u64,
    /// How long.
    pub ns: u64,
    /// Of these, had to give way.
    pub preempted: u64,
    /// How long.
    pub preempted_ns: u64,
    /// Of these, within a traced call.
    pub in_calls: u64,
    /// How long.
    pub in_calls_ns: u64,
}

/// One slow call.
#[derive(Clone, Debug, Serialize)]
pub struct SlowRow {
    /// How long it took.
    pub ns: u64,
    /// When it began, since the trace's start.
    pub at_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// Traced calls around it.
    pub depth: u8,
    /// The function.
    pub name: String,
    /// Its arguments, as text.
    pub args: String,
    /// What it returned.
    pub ret: Option<String>,
    /// It failed.
    pub error: bool,
}

impl MovedRow {
    pub(super) fn of(direction: String, moved: Moved) -> Self {
        Self { direction, count: moved.count, bytes: moved.bytes, ns: moved.ns }
    }
}

impl SwitchRow {
    pub(super) fn of(switches: Switches) -> Self {
        let Switches { count, ns, preempted, preempted_ns, in_calls, in_calls_ns } = switches;
        Self { count, ns, preempted, preempted_ns, in_calls, in_calls_ns }
    }
}
