//! The result of a fold: everything aggregated, bounded by distinct stacks and names, not by events.

use std::{collections::BTreeMap, sync::Arc};

use cuda::occupancy::{Limits, Shape};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::{
    calls::Calls,
    communication::Communication,
    counters::Counters,
    energy::GpuEnergy,
    event::{
        CostProgram, Direction, Dump, End, Frame, FrameKind, LaunchKind, LimitTotals, Mapping, Mode, NamedFrame,
        OwnCost, Pause, ProcessId, Sampling, SessionCost, SessionId, StackId, Start, Uuid,
    },
    gpu_counters::CounterSum,
    idle::Idle,
    ledger::{self, Ledger},
    limits::KernelLimits,
    memory::GpuMemory,
    ranges::Ranges,
    ranks::Ranks,
    stacks::Stacks,
    stalls::{StallLedger, Stalls},
    steps::Steps,
    symbols::Symbols,
    verdict::{Assigned, KernelSamples},
};

/// The number shared by all devices beyond the limit.
pub const OTHER_DEVICE: u32 = u32::MAX;

/// The aggregated contents of a recording.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// How it began; absent only in a recording truncated before its first chunk.
    pub start: Option<Start>,
    /// How it ended; absent in a truncated recording.
    pub end: Option<End>,
    /// Why it was written, if it is a dump of the recent past.
    pub dump: Option<Dump>,
    /// What it is a part of; absent if it is a whole recording.
    pub part: Option<Part>,
    /// The latest timestamp seen, for a recording without an end.
    pub last_time: u64,
    /// Process images by id.
    pub processes: BTreeMap<ProcessId, ProcessInfo>,
    /// Names of threads, the latest of each.
    pub threads: BTreeMap<(ProcessId, u32), String>,
    /// CUDA processes.
    pub sessions: BTreeMap<SessionId, SessionInfo>,
    /// Ranks of a distributed program; empty if no process has one.
    pub ranks: Ranks,
    /// Communicators and their operations.
    pub communication: Communication,
    /// Steps, if somebody looked for them: that takes another pass over the events.
    pub steps: Option<Steps>,
    /// NVTX ranges; empty unless they were requested.
    pub ranges: Ranges,
    /// GPUs by number.
    pub devices: BTreeMap<u32, DeviceInfo>,
    /// The number of each session's devices, by session and the session's own index.
    pub device_numbers: FxHashMap<(SessionId, u32), u32>,
    /// Where the numbers come from.
    pub numbering: Numbering,
    /// Frames of every distinct stack.
    pub stacks: Stacks,
    /// Executable mappings, for addresses that have no symbol yet.
    pub mappings: Vec<Mapping>,
    /// Names of frames.
    pub symbols: Symbols,
    /// CPU time by stack.
    pub cpu: FxHashMap<(ProcessId, StackId), CpuWeight>,
    /// Recorded waits of threads that launch GPU work, by stack.
    pub waited: FxHashMap<(ProcessId, StackId), CpuWeight>,
    /// GPU time.
    pub gpu: FxHashMap<GpuKey, GpuWeight>,
    /// Copies from and to memory that is not pinned, by the stack that launched them.
    pub pageable: FxHashMap<(ProcessId, Option<StackId>, Direction), GpuWeight>,
    /// Launches whose activity never arrived.
    pub pending: FxHashMap<(ProcessId, StackId, LaunchKind), u64>,
    /// Launches after the end of the recording whose work was not reported, by thread and stack: not part of it.
    pub launched_after_end: FxHashMap<(ProcessId, u32, StackId), u64>,
    /// The shapes of kernels by device and index of the kernel, a limited number of each.
    pub shapes: FxHashMap<(u32, u32), FxHashMap<Shape, GpuWeight>>,
    /// Distinct kernel names, demangled for display; [`What::Kernel`] indexes them.
    pub kernel_names: Vec<KernelText>,
    /// The energy of GPUs; empty unless it was requested.
    pub energy: Vec<GpuEnergy>,
    /// The counters of GPUs; empty unless they were requested.
    pub gpu_counters: Vec<CounterSum>,
    /// The samples of those counters that belong to one kernel, by the index of its name.
    pub kernel_samples: FxHashMap<u32, KernelSamples>,
    /// How the samples were assigned.
    pub assigned: Assigned,
    /// What hardware counters counted for single launches; empty unless that was requested.
    pub limits: KernelLimits,
    /// How launches were measured, by session.
    pub limit_totals: BTreeMap<SessionId, LimitTotals>,
    /// Samples of instructions on GPUs; empty unless they were requested.
    pub stalls: Stalls,
    /// Time the host waited for the GPU in synchronising calls, and how often.
    pub waits: CpuWeight,
    /// Of these, waits for single streams.
    pub stream_waits: FxHashMap<(SessionId, u32), CpuWeight>,
    /// Copies whose call returned after the copy. Those that block have waited for the GPU.
    pub late_copies: FxHashMap<CopyCaller, LateCopies>,
    /// Time in other launch-class calls whose length is known, and their number.
    pub launching: CpuWeight,
    /// Traced calls.
    pub calls: Calls,
    /// Counted events.
    pub counters: Counters,
    /// GPU memory at its peak and at the end.
    pub memory: GpuMemory,
    /// The cost of collecting.
    pub cost: Cost,
    /// What was sampled.
    pub sampled: Sampled,
    /// Times in which other clients used CUPTI, by session and number.
    pub pauses: BTreeMap<(SessionId, u32), Pause>,
    /// The ledger.
    pub ledger: Ledger,
    /// What the reader says about phases; for the whole recording.
    pub phase_rules: String,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// What a profile is a part of.
#[derive(Clone, Debug)]
pub struct Part {
    /// The options that select it: `--kernel gemm`.
    pub filters: Vec<String>,
    /// It is a time range, and has everything that happened in it.
    pub is_range: bool,
    /// The whole: for a time range the recording, otherwise everything that happened in the same time.
    pub whole: Box<Profile>,
}

/// What was sampled, if the cost was limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Launches whose stack was not taken.
    pub without_stack: u64,
    /// Launches that were only counted, and what was estimated for them.
    pub estimated: Estimated,
    /// How much of each session was recorded.
    pub sessions: BTreeMap<SessionId, Sampling>,
}

/// What was estimated for launches that were only counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimated {
    /// Launches that were only counted.
    pub launches: u64,
    /// Of those, the ones without a time, because nothing like them was recorded.
    pub timeless: u64,
    /// Kernels that they launched.
    pub kernels: u64,
    /// The estimated time of these kernels.
    pub kernel_ns: u64,
}

/// The cost of collecting, as measured while collecting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of warpscope and of the command; absent in recordings of earlier versions.
    pub own: Option<OwnCost>,
    /// The costs of the sessions.
    pub sessions: BTreeMap<SessionId, SessionCost>,
    /// Runs of the BPF programs and their time.
    pub programs: BTreeMap<CostProgram, (u64, u64)>,
}

/// A process image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The pid.
    pub pid: u32,
    /// The image before it.
    pub parent: Option<ProcessId>,
    /// How it was created.
    pub origin: crate::event::Origin,
    /// Its short name.
    pub comm: String,
    /// When it appeared.
    pub start: u64,
    /// When it ended; 0 if it did not.
    pub end: u64,
}

/// A CUDA process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its image.
    pub process: ProcessId,
    /// CUPTI's version.
    pub cupti: u32,
    /// The driver's version.
    pub driver: u32,
    /// It uses the Multi-Process Service (MPS).
    pub mps: bool,
}

/// How GPUs are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Numbering {
    /// As processes number them: their UUIDs are not known.
    #[default]
    Process,
    /// As the machine numbers them: all its GPUs in the order of their PCI addresses.
    Machine,
    /// The recorded GPUs in the order of their PCI addresses.
    Pci,
    /// The recorded GPUs in the order of their UUIDs.
    Uuid,
}

/// A GPU, or an instance of a partitioned one (MIG).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number as shown: `1`; for an instance `0:2`, the GPU's number and the instance's.
    pub label: String,
    /// Its UUID, `GPU-...` or `MIG-...`; empty if it is not known.
    pub uuid: String,
    /// For an instance, the UUID of its GPU; otherwise empty.
    pub gpu_uuid: String,
    /// Its name; empty if it was not reported.
    pub name: String,
    /// Its resources, if they are known.
    pub limits: Limits,
    /// Time in which at least one kernel, copy or memset ran.
    pub busy_ns: u64,
    /// Time in which at least one kernel ran.
    pub kernel_busy_ns: u64,
    /// The longest idle intervals between its first work and its last, as (start, end), longest first.
    pub gaps: Vec<(u64, u64)>,
    /// Why it was idle.
    pub idle: Idle,
    /// The same of the parts of the time that the fold was created with, in their order.
    pub idle_of_parts: Vec<Idle>,
    /// Streams seen, as (session, context, stream).
    pub streams: std::collections::BTreeSet<(SessionId, u32, u32)>,
}

/// A kernel's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelText {
    /// As reported by CUPTI.
    pub mangled: Arc<str>,
    /// For display; equal to `mangled` until symbols are applied.
    pub text: Arc<str>,
}

/// The key by which GPU time is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GpuKey {
    /// The image.
    pub process: ProcessId,
    /// The stack that launched it; absent if the launch was not seen.
    pub stack: Option<StackId>,
    /// The stack that created it, if it is a node of a graph and that was seen.
    pub capture: Option<StackId>,
    /// What ran.
    pub what: What,
    /// The device.
    pub device: u32,
    /// The stream.
    pub stream: u32,
    /// The NVTX range that it was launched in, a number of [`Profile::ranges`]; 0 if there is none.
    pub range: u32,
}

/// What ran on the GPU, as distinguished in a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// A kernel: index into [`Profile::kernel_names`].
    Kernel(u32),
    /// A copy, with its size class: the power of two at or below its bytes (0 for an empty copy).
    Copy(Direction, u64),
    /// A memset.
    Memset,
}

impl What {
    /// Returns the index of the kernel, if it is one.
    pub fn kernel(self) -> Option<u32> {
        match self {
            Self::Kernel(index) => Some(index),
            Self::Copy(..) | Self::Memset => None,
        }
    }
}

/// CPU time of one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWeight {
    /// Samples.
    pub count: u64,
    /// Nanoseconds.
    pub ns: u64,
}

/// A call that copies: its image, its thread and its stack.
pub type CopyCaller = (ProcessId, u32, StackId);

/// Copies whose call returned after the copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateCopies {
    /// Time from the beginning of each call to the end of its copy.
    pub waited: CpuWeight,
    /// Time in the calls.
    pub calls: CpuWeight,
}

/// GPU time for one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuWeight {
    /// Activities.
    pub count: u64,
    /// Nanoseconds.
    pub ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Bytes, for copies and memsets.
    pub bytes: u64,
    /// Microjoules, for kernels if energy was recorded.
    pub microjoules: u64,
}

impl GpuWeight {
    /// Adds another weight.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.microjoules = self.microjoules.saturating_add(other.microjoules);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

impl Profile {
    /// Returns the times in which other clients used CUPTI, in order.
    pub(crate) fn ledger_pauses(&self, recorded: u64) -> Vec<ledger::Pause> {
        let start = self.start.as_ref().map_or(0, |start| start.time);
        let pid = |session| {
            let process = self.sessions.get(&session).and_then(|info| self.processes.get(&info.process));
            process.map_or(0, |info| info.pid)
        };
        let mut pauses: Vec<_> = self
            .pauses
            .values()
            .map(|pause| ledger::Pause {
                pid: pid(pause.session),
                start_ns: pause.from.saturating_sub(start),
                ns: pause.to.min(recorded).saturating_sub(pause.from),
                client: pause.client.clone(),
                lasts: pause.to == u64::MAX,
            })
            .collect();
        pauses.sort_by_key(|pause| (pause.start_ns, pause.pid));
        pauses
    }

    /// Returns the rank of a process: its own, or that of the process that started it.
    pub fn rank(&self, process: ProcessId) -> Option<u32> {
        self.ranks.of(process, |id| self.processes.get(&id).and_then(|info| info.parent))
    }

    /// Returns the number of a session's device.
    pub fn device(&self, session: SessionId, index: u32) -> u32 {
        self.device_numbers.get(&(session, index)).copied().unwrap_or(OTHER_DEVICE)
    }

    /// Returns the number of a device as shown.
    pub fn device_label(&self, number: u32) -> &str {
        self.devices.get(&number).map_or("?", |device| &device.label)
    }

    /// Shows the work of graphs under the stacks that launched the graphs, instead of those that created their nodes.
    pub fn show_graphs_by_launch(&mut self) {
        if !self.gpu.keys().any(|key| key.capture.is_some()) {
            return;
        }
        for (key, weight) in std::mem::take(&mut self.gpu) {
            self.gpu.entry(GpuKey { capture: None, ..key }).or_default().add(&weight);
        }
    }

    /// Adds what a reader knows a GPU by to its energy.
    pub(crate) fn name_energy(&self, gpu: Uuid, energy: GpuEnergy) -> GpuEnergy {
        GpuEnergy { label: self.gpu_label(gpu).unwrap_or_default(), uuid: format!("GPU-{gpu}"), ..energy }
    }

    /// Returns the number of a GPU as shown.
    pub(crate) fn gpu_label(&self, gpu: Uuid) -> Option<String> {
        // An instance is labelled `0:2`.
        self.device_label(self.device_of_gpu(gpu)?).split(':').next().map(str::to_owned)
    }

    /// Returns a device of a GPU: the GPU itself, or the first instance of it that is known.
    pub fn device_of_gpu(&self, gpu: Uuid) -> Option<u32> {
        let uuid = format!("GPU-{gpu}");
        let is = |info: &DeviceInfo| info.uuid == uuid || info.gpu_uuid == uuid;
        self.devices.iter().find(|(_, info)| is(info)).map(|(number, _)| *number)
    }

    /// Counts what was sampled inside kernels.
    pub fn stall_ledger(&self) -> Option<StallLedger> {
        let kernels: FxHashSet<u32> = self.gpu.keys().filter_map(|key| key.what.kernel()).collect();
        self.stalls.ledger(|function| kernels.contains(&function))
    }

    /// Returns the time from the start to the end of the recording.
    pub fn wall_ns(&self) -> u64 {
        let end = self.end.map_or(self.last_time, |e| e.time);
        self.start.as_ref().map_or(0, |s| end.saturating_sub(s.time))
    }

    /// Whether a stack is in warpscope's own code: the injected library, CUPTI, or a probe.
    pub fn is_own_cost(&self, stack: StackId) -> bool {
        let Some(stack) = self.stacks.get(stack) else { return false };
        stack.frames().any(|frame| {
            let names = self.symbols.at(frame.named_in(stack.process), frame, stack.time);
            names.is_some_and(|names| names.iter().any(|name| name.kind == FrameKind::Probe))
        })
    }

    /// Whether a stack is in the injected library, or in CUPTI on its behalf. Where nothing was injected, CUPTI belongs
    /// to the program.
    pub fn is_injected(&self, stack: StackId) -> bool {
        let injected = self.start.as_ref().is_some_and(|start| matches!(start.mode, Mode::Merged | Mode::GpuOnly));
        injected && self.is_own_cost(stack)
    }

    /// A trace collects stacks only on request: in a trace, 0 means no stack, not a lost one.
    pub fn is_trace(&self) -> bool {
        self.start.as_ref().is_some_and(|start| matches!(start.mode, Mode::Trace | Mode::TraceSums))
    }

    /// Whether it was made by `record`: its calls are those that allocate and free memory.
    pub(crate) fn is_recording(&self) -> bool {
        self.start.is_some() && !self.is_trace()
    }

    /// Returns the frames of a stack for display, outermost first: by name where it is known and by module otherwise,
    /// without the frames of the probe itself.
    pub fn frames(&self, stack: StackId) -> Vec<NamedFrame> {
        if stack == StackId(0) && self.is_trace() {
            return Vec::new();
        }
        let Some(stack) = self.stacks.get(stack) else {
            let name = match stack {
                StackId::NOT_SAMPLED => "[stack not sampled]",
                StackId::LEFT_OUT => "[too many stacks]",
                _ => "[stack lost]",
            };
            return vec![NamedFrame { kind: FrameKind::Native, name: name.into(), module: "".into() }];
        };
        let outwards: Vec<Frame> = stack.frames().collect();
        let mut frames: Vec<NamedFrame> = Vec::with_capacity(outwards.len());
        for frame in outwards.into_iter().rev() {
            match self.symbols.at(frame.named_in(stack.process), frame, stack.time) {
                Some(names) => frames.extend(names.iter().cloned()),
                None => {
                    frames.push(NamedFrame { kind: FrameKind::Native, name: "[unknown]".into(), module: "".into() });
                }
            }
        }
        // A launch's stack ends in the marker: the frames inside the launch call are those of the probe itself.
        if frames.last().is_some_and(|f| &*f.name == wire::MARKER_SYMBOL) {
            while frames.pop_if(|f| f.kind == FrameKind::Probe).is_some() {}
        }
        // Adjacent unnamed frames of one module become one frame.
        frames.dedup_by(|a, b| a == b && a.name.starts_with('['));
        frames
    }
}
