//! The rows of a trace's tables.

use model::{
    calls::{Moved, Tier, TierSum},
    event::{Layer, Memory},
};
use serde::Serialize;

/// Calls of one layer: the program, the CUDA runtime, the CUDA driver, requests to the kernel driver, or the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct LayerRow {
    /// The layer.
    pub layer: Tier,
    /// Its calls. Summed over all layers, `self_ns` is the time in calls.
    #[serde(flatten)]
    pub sum: TierSum,
}

/// Totals of the requests to the driver: system calls on its device files.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DriverRequests {
    /// Number of requests.
    pub count: u64,
    /// Total time.
    pub ns: u64,
}

/// All calls of one function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionRow {
    /// The function.
    pub name: String,
    /// The file name of its library.
    pub library: String,
    /// Its layer.
    pub layer: Layer,
    /// Calls that returned.
    pub calls: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Of these, nested in other traced calls, whose time includes theirs.
    pub inner: u64,
    /// Total time.
    pub ns: u64,
    /// Of this, outside other traced calls within them.
    pub self_ns: u64,
    /// Mean duration.
    pub mean_ns: u64,
    /// Median duration.
    pub p50_ns: u64,
    /// 90th percentile of the duration.
    pub p90_ns: u64,
    /// 99th percentile of the duration.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Bytes allocated, copied or set.
    pub bytes: u64,
    /// Histogram of durations: (from nanoseconds, calls).
    pub histogram: Vec<(u64, u64)>,
}

/// Requests of one kind to one device.
#[derive(Clone, Debug, Serialize)]
pub struct RequestRow {
    /// The device file.
    pub device: String,
    /// The request or system call.
    pub request: String,
    /// Its command, or the class that it allocates; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Number of requests.
    pub count: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Total time.
    pub ns: u64,
    /// Mean duration.
    pub mean_ns: u64,
    /// Median duration.
    pub p50_ns: u64,
    /// 90th percentile of the duration.
    pub p90_ns: u64,
    /// 99th percentile of the duration.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Histogram of durations: (from nanoseconds, requests).
    pub histogram: Vec<(u64, u64)>,
}

/// Hits of one tracepoint.
#[derive(Clone, Debug, Serialize)]
pub struct PointRow {
    /// Its category.
    pub category: String,
    /// Its name.
    pub name: String,
    /// Number of hits.
    pub count: u64,
}

/// Calls that failed with the same error.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorRow {
    /// The function.
    pub function: String,
    /// The error's name.
    pub error: String,
    /// Its number.
    pub code: i64,
    /// Calls. If a call failed because a nested call failed, only the outer one is counted.
    pub count: u64,
    /// Calls nested in others that return a status of their own.
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
    /// The kind of memory.
    pub space: &'static str,
    /// Allocations and frees. Where calls were only summed up, the peak is the maximum of any process.
    #[serde(flatten)]
    pub memory: Memory,
}

/// Copies in one direction.
#[derive(Clone, Debug, Serialize)]
pub struct MovedRow {
    /// The direction.
    pub direction: String,
    /// The calls.
    #[serde(flatten)]
    pub moved: Moved,
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
    /// Its result.
    pub ret: Option<String>,
    /// Whether it failed.
    pub error: bool,
}
