//! The summary of a recording: the numbers (`report --json`) and the text printed after `record`.

use std::{
    collections::{BTreeMap, HashSet},
    io,
};

use model::{
    event::{Direction, LossCause, Mode, Origin, StackEnd},
    ledger::Lost,
    profile::{GpuWeight, Profile, What},
};
use serde::Serialize;
use text::units::hundredths;

use crate::{
    events::Events,
    flame::{Flame, Line},
    flames::Flames,
    losses, names,
    trace::TraceSummary,
};

pub mod events;
pub(crate) mod render;
mod tables;

pub use events::EventSummary;
pub use render::render;
use tables::{TOP, share};

/// The numbers of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The command and its arguments; empty when attached.
    pub command: Vec<String>,
    /// What was recorded.
    pub mode: Mode,
    /// From the start to the end of the recording.
    pub wall_ns: u64,
    /// The recording has no end: it was truncated, and is complete up to its last chunk.
    pub cut_off: bool,
    /// The command's wait status.
    pub status: Option<i32>,

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
    /// Time that host threads waited for a GPU, as reported by CUPTI, added over threads.
    pub host_wait_ns: u64,
    /// Number of such waits.
    pub host_waits: u64,

    /// Launch-class calls.
    pub launches: u64,
    /// The same per second.
    pub launches_per_second: f64,
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
    /// CPU samples.
    pub cpu_samples: u64,
    /// The time that they represent.
    pub cpu_time_ns: u64,
    /// Of those samples, the ones in warpscope's own code, in CUPTI and in probes: no graph or table shows them.
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

    /// Kernels by time.
    pub top_kernels: Vec<Kernel>,
    /// Call paths by the GPU time that they caused.
    pub top_paths: Vec<Path>,
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

    /// Why there is no GPU work, where GPU work was expected and there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_gpu_work: Option<&'static str>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The ledger as sentences: `matched 100 %`, work captured into graphs, then each loss.
    pub ledger: Vec<String>,
}

/// A GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name; empty if it was not reported.
    pub name: String,
    /// Time in which at least one kernel, copy or memset ran.
    pub busy_ns: u64,
    /// The same as a share of the recording.
    pub busy_share: f64,
    /// Streams seen.
    pub streams: u64,
}

/// All runs of the kernels with the same name.
#[derive(Clone, Debug, Serialize)]
pub struct Kernel {
    /// The whole name.
    pub name: String,
    /// Runs.
    pub count: u64,
    /// Total time.
    pub ns: u64,
    /// Mean duration.
    pub mean_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Their share of `kernel_time_ns`, 0 to 1.
    pub share: f64,
}

/// GPU work of one kind under one call path.
#[derive(Clone, Debug, Serialize)]
pub struct Path {
    /// The frames, from the process to the operation on the GPU.
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

impl Summary {
    /// Sums up a profile.
    pub fn of(flames: &Flames<'_>) -> Self {
        let profile = flames.profile;
        let ledger = &profile.ledger;
        let start = profile.start.as_ref();
        let wall_ns = profile.wall_ns();
        let gpu_time_ns = profile.gpu.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
        let cpu_time_ns = profile.cpu.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
        let cpu = flames.cpu();
        let devices = devices(profile, wall_ns);
        let working = || devices.iter().filter(|device| device.streams > 0);
        let mut lost = ledger.lost.clone();
        for cause in LossCause::ALL {
            lost.causes.entry(cause).or_default();
        }
        Self {
            command: start.map(|s| s.command.clone()).unwrap_or_default(),
            mode: start.map(|s| s.mode).unwrap_or_default(),
            wall_ns,
            cut_off: profile.end.is_none(),
            status: profile.end.and_then(|end| end.status),
            gpu_time_ns,
            kernel_time_ns: ledger.kernel_ns,
            kernel_time_delivered_ns: ledger.kernel_ns_delivered,
            gpu_busy_ns: working().fold(0, |sum, device| sum.saturating_add(device.busy_ns)),
            gpu_idle_ns: working().fold(0, |sum, d| sum.saturating_add(wall_ns.saturating_sub(d.busy_ns))),
            host_wait_ns: profile.waits.ns,
            host_waits: profile.waits.count,
            launches: ledger.launches,
            launches_per_second: if wall_ns == 0 { 0.0 } else { ledger.launches as f64 * 1e9 / wall_ns as f64 },
            kernels: ledger.kernels,
            copies: ledger.copies,
            memsets: ledger.memsets,
            matched: ledger.activities_matched,
            matched_percent: hundredths(
                ledger.activities_matched,
                ledger.activities_matched + ledger.activities_unmatched,
            ) as f64
                / 100.0,
            unmatched_activities: ledger.activities_unmatched,
            pending_launches: ledger.launches_pending,
            failed_launches: ledger.launches_failed,
            captured_launches: ledger.launches_captured,
            empty_launches: ledger.launches_empty,
            zero_time: ledger.zero_time,
            unfinished: ledger.unfinished,
            stacks_missing: ledger.stacks_missing,
            gpu_stack_ends: ledger.gpu_stack_ends.clone(),
            cpu_stack_ends: ledger.cpu_stack_ends.clone(),
            sessions_cut_off: ledger.sessions_cut_off,
            sessions_left: ledger.sessions_left,
            lost,
            stacks: stacks(profile),
            cpu_samples: ledger.samples,
            cpu_time_ns,
            own_samples: cpu.own.samples,
            own_time_ns: cpu.own.amount,
            processes: profile.processes.values().filter(|image| image.origin != Origin::Exec).count() as u64,
            images: profile.processes.len() as u64,
            threads: profile.threads.len() as u64,
            top_kernels: top_kernels(profile),
            top_paths: top_paths(&flames.gpu(), gpu_time_ns),
            top_functions: top_functions(&cpu.lines, cpu_time_ns),
            copies_by_direction: copies(profile),
            devices,
            events: events::of(flames),
            trace: TraceSummary::of(profile),
            no_gpu_work: no_gpu_work(profile),
            notes: profile.notes.clone(),
            ledger: losses::matched(ledger)
                .into_iter()
                .chain(losses::captured(ledger.launches_captured))
                .chain(losses::own_cost(cpu.own))
                .chain(losses::empty(ledger.launches_empty))
                .chain(losses::sentences(ledger))
                .collect(),
        }
    }

    /// The same, with the parts that require the events of a trace. `events` opens the recording from its beginning; it
    /// is called once, and only for traces. The time line is as wide as the text will be.
    pub fn with_events<'a>(
        flames: &Flames<'_>,
        events: &mut dyn FnMut() -> io::Result<Events<'a>>,
        width: usize,
    ) -> io::Result<Self> {
        let mut summary = Self::of(flames);
        if let Some(trace) = &mut summary.trace {
            trace.add_events(flames.profile, events()?, width);
        }
        Ok(summary)
    }
}

fn stacks(profile: &Profile) -> u64 {
    let cpu = profile.cpu.keys().map(|(_, stack)| *stack);
    let gpu = profile.gpu.keys().filter_map(|key| key.stack);
    cpu.chain(gpu).filter(|stack| profile.stacks.contains_key(stack)).collect::<HashSet<_>>().len() as u64
}

fn devices(profile: &Profile, wall_ns: u64) -> Vec<Device> {
    let device = |(&index, info): (&u32, &model::profile::DeviceInfo)| Device {
        index,
        name: info.name.clone(),
        busy_ns: info.busy_ns,
        busy_share: share(info.busy_ns, wall_ns),
        streams: info.streams.len() as u64,
    };
    profile.devices.iter().map(device).collect()
}

fn add(sum: &mut GpuWeight, weight: &GpuWeight) {
    sum.count += weight.count;
    sum.ns = sum.ns.saturating_add(weight.ns);
    sum.bytes = sum.bytes.saturating_add(weight.bytes);
    sum.max_ns = sum.max_ns.max(weight.max_ns);
}

/// Sorted by time; entries with equal times, by name.
fn top<K: Ord, W>(weights: BTreeMap<K, W>, ns: impl Fn(&W) -> u64) -> impl Iterator<Item = (K, W)> {
    let mut rows: Vec<(K, W)> = weights.into_iter().collect();
    rows.sort_by_key(|(_, weight)| std::cmp::Reverse(ns(weight)));
    rows.into_iter().take(TOP)
}

/// Returns why a recording has no GPU work. If a process that uses CUDA could not report, the notes say why.
fn no_gpu_work(profile: &Profile) -> Option<&'static str> {
    let mode = profile.start.as_ref().map_or(Mode::Merged, |start| start.mode);
    if !matches!(mode, Mode::Merged | Mode::GpuOnly) || !profile.gpu.is_empty() {
        return None;
    }
    let is_libcuda = |path: &str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libcuda.so"));
    Some(if profile.notes.iter().any(|note| note.starts_with("no GPU activity")) {
        "see the notes above"
    } else if !profile.sessions.is_empty() && profile.ledger.launches == 0 {
        "CUDA was initialised, but nothing was launched"
    } else if !profile.sessions.is_empty() {
        "see the ledger below"
    } else if profile.mappings.is_empty() {
        "which libraries were loaded is unknown"
    } else if profile.mappings.iter().any(|mapping| is_libcuda(&mapping.path)) {
        "libcuda was loaded, but nothing was reported"
    } else {
        "no process loaded libcuda"
    })
}

fn top_kernels(profile: &Profile) -> Vec<Kernel> {
    let mut kernels: BTreeMap<&str, GpuWeight> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        if let What::Kernel(index) = key.what {
            add(kernels.entry(names::kernel(profile, index)).or_default(), weight);
        }
    }
    let kernel = |(name, weight): (&str, GpuWeight)| Kernel {
        name: name.to_owned(),
        count: weight.count,
        ns: weight.ns,
        mean_ns: weight.ns / weight.count.max(1),
        max_ns: weight.max_ns,
        share: share(weight.ns, profile.ledger.kernel_ns),
    };
    top(kernels, |weight| weight.ns).map(kernel).collect()
}

fn top_paths(flame: &Flame, gpu_time_ns: u64) -> Vec<Path> {
    let lines = flame.lines.iter().map(|line| (&line.frames, line.weight)).collect();
    top(lines, |weight| weight.amount)
        .map(|(frames, weight)| Path {
            path: frames.iter().map(ToString::to_string).collect(),
            ns: weight.amount,
            count: weight.operations,
            share: share(weight.amount, gpu_time_ns),
        })
        .collect()
}

fn top_functions(lines: &[Line], cpu_time_ns: u64) -> Vec<Function> {
    let mut functions = BTreeMap::new();
    for line in lines {
        if let Some(innermost) = line.frames.last() {
            functions.entry(innermost.clone()).or_insert_with(crate::flame::Weight::default).add(line.weight);
        }
    }
    top(functions, |weight| weight.amount)
        .map(|(name, weight)| Function {
            name: name.to_string(),
            ns: weight.amount,
            samples: weight.samples,
            share: share(weight.amount, cpu_time_ns),
        })
        .collect()
}

fn copies(profile: &Profile) -> Vec<Copies> {
    let mut directions: BTreeMap<Direction, GpuWeight> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        if let What::Copy(direction, _) = key.what {
            add(directions.entry(direction).or_default(), weight);
        }
    }
    let copies = |(direction, weight): (Direction, GpuWeight)| Copies {
        direction,
        count: weight.count,
        bytes: weight.bytes,
        ns: weight.ns,
        gb_per_s: share(weight.bytes, weight.ns),
    };
    top(directions, |weight| weight.bytes).map(copies).collect()
}
