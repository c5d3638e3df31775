//! The numbers of a recording.

use std::collections::BTreeMap;

use model::{
    event::{Direction, DumpReason, Mode, StackEnd},
    gpu_counters::CounterSum,
    ledger::{Lost, Pause},
    profile::Numbering,
};
use serde::Serialize;

use super::{
    clocks::Clock,
    cost::Cost,
    events::EventSummary,
    ranges::Range,
    ranks::{Communication, Rank},
    sampling::Sampling,
};
use crate::trace::TraceSummary;
use crate::{
    collectives::{Collective, Late},
    energy::EnergySummary,
    findings::Finding,
    idle::DeviceIdle,
    limits::LimitSummary,
    memory::DeviceMemory,
    occupancy::ShapeOccupancy,
    stalls::StallSummary,
    steps::StepSummary,
    verdicts::VerdictSummary,
};

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A dump of the recent past.
#[derive(Clone, Debug, Serialize)]
pub struct Dumped {
    /// Why it was written.
    pub reason: DumpReason,
    /// The same in words.
    pub text: String,
    /// When that occurred, since the start of the recording.
    pub at_ns: u64,
    /// The length of the window as requested.
    pub window_ns: u64,
    /// Events that were discarded before the window.
    pub discarded: u64,
    /// The window is shorter than requested, because the buffer was full.
    pub full: bool,
}

/// The numbers of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The command and its arguments; empty when attached.
    pub command: Vec<String>,
    /// The options that select the part of the recording that is shown; absent if it is shown as a whole. Unless only a time
    /// range is selected, `devices`, `idle`, `ranks`, host waits, `launch_each_ns` and `cost` are those of the whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// The same as a sentence.
    #[serde(skip)]
    pub part_note: Option<String>,
    /// What was recorded.
    pub mode: Mode,
    /// From the start to the end of the recording.
    pub wall_ns: u64,
    /// The recording has no end: it was truncated, and is complete up to its last chunk.
    pub cut_off: bool,
    /// Why it was written, if it is a dump of the recent past.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dump: Option<Dumped>,
    /// The command's wait status.
    pub status: Option<i32>,
    /// What costs time, and what to try: idle GPUs, then those that affect the most time. Absent if there is nothing to say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Why each GPU was idle; absent in traces, and if GPU work was recorded only part of the time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<DeviceIdle>,
    /// Who holds GPU memory at its peak and at the end; absent without `--memory`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<DeviceMemory>,
    /// How kernels fill the device, by kernel and shape, those with the most time first; absent if the device is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub occupancy: Vec<ShapeOccupancy>,
    /// The energy of the GPUs; absent without `--energy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergySummary>,
    /// The counters of the GPUs, by CUPTI's PM sampling or NVML's performance monitors (GPM); absent without `--counters`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CounterSum>,
    /// What limits each kernel, by PM sampling; absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels_by_counters: Option<VerdictSummary>,
    /// What limits each kernel at each line, by counters of single launches; absent without `--limits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitSummary>,
    /// Where the warps of kernels were and why they waited; absent without `--stalls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalls: Option<StallSummary>,

    /// Durations of all kernels, copies and memsets, added up: concurrent work is added too.
    pub gpu_time_ns: u64,
    /// Durations of all kernels only.
    pub kernel_time_ns: u64,
    /// Durations of all kernels as added up by the processes themselves when CUPTI delivered them.
    pub kernel_time_delivered_ns: u64,
    /// Time in which at least one kernel, copy or memset ran, added over the GPUs in use.
    pub gpu_busy_ns: u64,
    /// Time in which a GPU that was used at all was idle, added over those GPUs.
    pub gpu_idle_ns: u64,
    /// Time that host threads waited for a GPU, added over threads: in calls that synchronise, as reported by CUPTI, and in
    /// copies that block.
    pub host_wait_ns: u64,
    /// Number of such waits.
    pub host_waits: u64,
    /// Of `host_wait_ns`, the time in copies that block, until the copy had ended.
    pub copy_wait_ns: u64,
    /// Of `host_waits`, the copies that block.
    pub copy_waits: u64,

    /// Launch-class calls.
    pub launches: u64,
    /// The same per second.
    pub launches_per_second: f64,
    /// The mean time of such a call, without those that waited for their copy, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_each_ns: Option<u64>,
    /// Kernels.
    pub kernels: u64,
    /// Copies.
    pub copies: u64,
    /// Memsets.
    pub memsets: u64,
    /// Kernels, copies and memsets joined to the launch that caused them.
    pub matched: u64,
    /// The same as a share, in percent, rounded down to two decimals: 100 only if all are joined.
    pub matched_percent: f64,
    /// Kernels, copies and memsets whose launch was not seen.
    pub unmatched_activities: u64,
    /// Launches whose activity never arrived.
    pub pending_launches: u64,
    /// Launches that returned an error.
    pub failed_launches: u64,
    /// Launches that became nodes of a graph: their work belongs to the graph.
    pub captured_launches: u64,
    /// Launches that gave the GPU nothing to do.
    pub empty_launches: u64,
    /// The steps; absent if no loop has most of the launches, and for a part of a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepSummary>,
    /// Work of graphs; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs: Option<Graphs>,
    /// GPU records without times.
    pub zero_time: u64,
    /// GPU records of work that had not finished.
    pub unfinished: u64,
    /// Stacks that were referred to but never arrived.
    pub stacks_missing: u64,
    /// How stack walks ended, weighted by kernels, copies and memsets.
    pub gpu_stack_ends: BTreeMap<StackEnd, u64>,
    /// How stack walks ended, weighted by CPU samples.
    pub cpu_stack_ends: BTreeMap<StackEnd, u64>,
    /// CUDA processes that exited before flushing their GPU records.
    pub sessions_cut_off: u64,
    /// CUDA processes that were still running when the recording stopped, and whose last GPU records may be missing.
    pub sessions_left: u64,
    /// Losses by cause; 0 where there was none.
    pub lost: Lost,

    /// Distinct call stacks of CPU samples and of launches whose GPU work is in the recording.
    pub stacks: u64,
    /// CPU samples of the program.
    pub cpu_samples: u64,
    /// The time that they represent.
    pub cpu_time_ns: u64,
    /// Other samples, in warpscope's own code, in CUPTI and in probes: no graph or table shows them.
    pub own_samples: u64,
    /// The time that they represent.
    pub own_time_ns: u64,
    /// Number of processes seen.
    pub processes: u64,
    /// Programs that ran in them: a process that calls exec has more than one.
    pub images: u64,
    /// Threads seen by name.
    pub threads: u64,
    /// GPUs.
    pub devices: Vec<Device>,
    /// Where their numbers come from.
    pub device_numbering: Numbering,
    /// How unevenly the GPUs in use were busy: the busy time of the busiest over the mean, less 1. Absent with fewer than
    /// two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_imbalance: Option<f64>,

    /// Ranks of a distributed program; absent if no process has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Rank>,
    /// NVTX ranges and marks, by name; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Range>,
    /// Communication kernels; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communication: Option<Communication>,
    /// Operations of communicators, by kind; absent if none is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<Collective>,
    /// Processes that made others wait in these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Late>,
    /// The clocks of the hosts, if there are several: the times are those of the first one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<Clock>,
    /// CUDA processes that use the Multi-Process Service (MPS); absent if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub mps_processes: u64,

    /// Kernels by time.
    pub top_kernels: Vec<Kernel>,
    /// Call paths by the GPU time that they caused.
    pub top_paths: Vec<Path>,
    /// The same by user code: paths with the same lines of user code and the same operation are one.
    pub top_lines: Vec<Path>,
    /// CPU functions by self time.
    pub top_functions: Vec<Function>,
    /// Copies by direction, by bytes.
    pub copies_by_direction: Vec<Copies>,

    /// Counted events; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventSummary>,

    /// The summary of a trace; absent if nothing was traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceSummary>,

    /// What was sampled; absent if the cost was not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// The cost of collecting; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,

    /// Why there is no GPU work, where GPU work was expected and there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_gpu_work: Option<&'static str>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Times without GPU records, because another client used CUPTI.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// The ledger as sentences: `matched 100 %`, work captured into graphs, then each loss.
    pub ledger: Vec<String>,
}

/// Work of graphs.
#[derive(Clone, Debug, Serialize)]
pub struct Graphs {
    /// Kernels, copies and memsets that graphs launched.
    pub operations: u64,
    /// Of those, the ones under the launch of their graph, because the creation of their node was not seen.
    pub operations_unknown: u64,
    /// The number of such nodes.
    pub nodes_unknown: u64,
}

/// A GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its number.
    pub index: u32,
    /// The same as shown: an instance of a partitioned GPU has the GPU's number and its own, `0:2`.
    pub label: String,
    /// Its UUID; absent if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    /// The UUID of its GPU, if it is an instance of one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gpu_uuid: String,
    /// Its name; empty if it was not reported.
    pub name: String,
    /// Time in which at least one kernel, copy or memset ran.
    pub busy_ns: u64,
    /// The same as a share of the recording.
    pub busy_share: f64,
    /// Streams seen.
    pub streams: u64,
    /// Durations of its kernels, copies and memsets, added up.
    pub time_ns: u64,
    /// Kernels.
    pub kernels: u64,
    /// Copies.
    pub copies: u64,
    /// Memsets.
    pub memsets: u64,
}

/// All runs of the kernels with the same name.
#[derive(Clone, Debug, Serialize)]
pub struct Kernel {
    /// The whole name.
    pub name: String,
    /// It is a communication kernel (NCCL); absent for others.
    #[serde(skip_serializing_if = "is_false")]
    pub communication: bool,
    /// Runs.
    pub count: u64,
    /// Total time.
    pub ns: u64,
    /// Mean duration.
    pub mean_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Their share of `gpu_time_ns`, 0 to 1.
    pub share: f64,
    /// The warps that a multiprocessor can hold, as a share of those that fit: the mean over their time. Absent if the
    /// device is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<f64>,
    /// What limits the warps for most of their time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limiter: Option<&'static str>,
}

/// GPU work of one kind under one call path.
#[derive(Clone, Debug, Serialize)]
pub struct Path {
    /// The frames, from the process to the operation on the GPU; in `top_lines`, without the code of libraries.
    pub path: Vec<String>,
    /// Total time.
    pub ns: u64,
    /// Kernels, copies or memsets.
    pub count: u64,
    /// Its share of `gpu_time_ns`, 0 to 1.
    pub share: f64,
}

/// Self time of one function on the CPU.
#[derive(Clone, Debug, Serialize)]
pub struct Function {
    /// The function.
    pub name: String,
    /// The time that its samples represent.
    pub ns: u64,
    /// Samples.
    pub samples: u64,
    /// Its share of `cpu_time_ns`, 0 to 1.
    pub share: f64,
}

/// Copies in one direction.
#[derive(Clone, Debug, Serialize)]
pub struct Copies {
    /// The direction.
    pub direction: Direction,
    /// Copies.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Total time.
    pub ns: u64,
    /// Bytes per time, in 10^9 bytes per second.
    pub gb_per_s: f64,
}
