//! Stacks by name, with their weights: the source of every flame graph and table of call paths.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use model::{
    event::{Call, Counter, CounterId, ProcessId, StackId, Unit},
    idle::{Cause, Phase},
    profile::Profile,
};
use text::units;

use crate::{
    family::Family,
    idle, memory,
    names::{self, GpuFrames},
    stalls::{self, leaves::Leaves},
    table::Table,
    waits,
};

/// Which parts of a profile to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// CPU samples.
    pub cpu: bool,
    /// GPU work, under the stacks that launched it.
    pub gpu: bool,
    /// Time off the CPU, if it was recorded.
    pub waits: bool,
    /// The idle time of the GPUs instead, under what the threads that feed them did.
    pub idle: bool,
    /// GPU memory instead, under the stacks that allocated it.
    pub memory: Option<MemoryView>,
    /// A counted event instead of both, because its amounts are not times.
    pub event: Option<EventView>,
    /// Draw each level of a recursion, instead of one frame for all. Other formats always have every level.
    pub unfold_recursion: bool,
    /// The table of a `.csv` file.
    pub table: Table,
    /// Which calls of a trace are written one by one, and how.
    pub calls: CallView,
}

/// Which calls of a trace are written one by one, and how. Sums and tables contain all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallView {
    /// Leave out calls that returned in less time than this.
    pub min_ns: u64,
    /// In lines of JSON, write the begin and the end of what took time as two events.
    pub begin_end: bool,
}

impl CallView {
    /// Whether a call is written. A tracepoint takes no time, and is not left out.
    pub fn shows(self, call: &Call) -> bool {
        call.duration().is_none_or(|ns| ns >= self.min_ns || ns == 0)
    }

    /// Returns the option that leaves out calls, as the header of a file names it.
    pub fn filter(self) -> Option<String> {
        (self.min_ns > 0).then(|| format!("--min-duration {}ns", self.min_ns))
    }

    /// Says what is left out, and of what; `None` if nothing can be.
    pub fn note(self, left_out: Option<u64>) -> Option<String> {
        if self.min_ns == 0 || left_out == Some(0) {
            return None;
        }
        let shorter = format!("shorter than {}", units::time(self.min_ns));
        let what = match left_out {
            Some(count) => format!("{} {shorter} are left out", units::counted(count, "call", "calls")),
            None => format!("calls {shorter} are left out of events"),
        };
        Some(format!("{what} (--min-duration); the summary and the tables contain them"))
    }
}

/// When to show GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryView {
    /// When most was in use.
    Peak,
    /// At the end.
    End,
}

/// Which counted event to show, and how to weigh it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventView {
    /// The event.
    pub counter: CounterId,
    /// Use the number of hits, even if they have a weight.
    pub by_count: bool,
}

impl Default for View {
    fn default() -> Self {
        Self {
            cpu: true,
            gpu: true,
            waits: true,
            idle: false,
            memory: None,
            event: None,
            unfold_recursion: false,
            table: Table::default(),
            calls: CallView::default(),
        }
    }
}

/// One distinct stack of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Outermost first: the process, its CPU frames, then the GPU operation.
    pub frames: Frames,
    /// Its weight.
    pub weight: Weight,
}

/// The weight of a stack, or of everything under a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Nanoseconds (the periods of samples, the durations of GPU work), or the weights of a counted event's hits: see
    /// [`Flame::measure`].
    pub amount: u64,
    /// CPU samples.
    pub samples: u64,
    /// Kernels, copies and memsets.
    pub operations: u64,
    /// Hits of a counted event.
    pub hits: u64,
}

impl Weight {
    /// Adds another weight.
    pub fn add(&mut self, other: Self) {
        self.amount = self.amount.saturating_add(other.amount);
        self.samples += other.samples;
        self.operations += other.operations;
        self.hits = self.hits.saturating_add(other.hits);
    }
}

/// All stacks of a profile by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flame {
    /// Sorted by frames, without duplicates.
    pub lines: Vec<Line>,
    /// The family of each name.
    pub families: BTreeMap<Arc<str>, Family>,
    /// CPU samples in warpscope's own code, in CUPTI and in probes: the cost of recording is not the program's.
    pub own: Weight,
    /// The unit of the amounts.
    pub measure: Measure,
    /// For lines with the work of graphs: the stacks that launched the graphs, with their amounts.
    pub launches: BTreeMap<Frames, BTreeMap<Frames, u64>>,
}

/// The names of a stack, outermost first.
pub type Frames = Vec<Arc<str>>;

/// The unit of an amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Time, in nanoseconds.
    #[default]
    Time,
    /// Bytes.
    Bytes,
    /// A number of hits, or a user-defined weight.
    Number,
}

impl Measure {
    /// Returns the unit of an event.
    pub fn of(counter: &Counter, by_count: bool) -> Self {
        match counter.unit {
            _ if by_count || counter.weight.is_empty() => Self::Number,
            Unit::Number => Self::Number,
            Unit::Bytes => Self::Bytes,
            Unit::Ns => Self::Time,
        }
    }

    /// Formats an amount.
    pub fn text(self, amount: u64) -> String {
        match self {
            Self::Time => units::time(amount),
            Self::Bytes => units::bytes(amount),
            Self::Number => units::count(amount),
        }
    }
}

impl Flame {
    /// Adds CPU samples: names every stack and sums those with the same names.
    pub fn of_cpu(profile: &Profile) -> Self {
        let mut naming = Naming::new(profile);
        let mut lines = Lines::new();
        let mut own = Weight::default();
        for (&(process, stack), cpu) in &profile.cpu {
            let weight = Weight { amount: cpu.ns, samples: cpu.count, ..Weight::default() };
            if profile.is_own_cost(stack) {
                own.add(weight);
                continue;
            }
            let mut frames = naming.stack(process, Some(stack));
            if let Some(reason) = waits::spinning(&profile.frames(stack)) {
                frames.push(naming.name(reason.to_owned(), Family::Wait));
            }
            lines.entry(frames).or_default().add(weight);
        }
        Self { own, ..naming.flame(lines, Measure::Time) }
    }

    /// Adds GPU work, under the stacks that launched it; that of graphs, under the stacks that created their nodes.
    pub fn of_gpu(profile: &Profile) -> Self {
        Self::of_work(profile, None)
    }

    /// The same, with the source lines of kernels and the reasons why their warps waited below the kernels.
    pub fn of_stalls(profile: &Profile) -> Self {
        Self::of_work(profile, Some(&Leaves::of(profile)))
    }

    fn of_work(profile: &Profile, leaves: Option<&Leaves>) -> Self {
        let mut naming = Naming::new(profile);
        let mut lines = Lines::new();
        let gpu_frames = GpuFrames::new(profile);
        let mut launches: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
        for (key, gpu) in &profile.gpu {
            let mut frames = naming.ranged(key.process, key.capture.or(key.stack), key.range);
            if key.capture.is_some() {
                frames.push(naming.name(names::GRAPH_REPLAY.to_owned(), Family::Graph));
            }
            frames.push(naming.name(gpu_frames.name(key.device, key.what), Family::of_work(key.what)));
            let weight = Weight { amount: gpu.ns, operations: gpu.count, ..Weight::default() };
            if key.capture.is_some() {
                let launch = naming.ranged(key.process, key.stack, key.range);
                let amount = launches.entry(frames.clone()).or_default().entry(launch).or_default();
                *amount = amount.saturating_add(gpu.ns);
            }
            let below = leaves.filter(|_| lines.len() < MOST_LINES).and_then(|leaves| leaves.divide(key, gpu));
            let Some(below) = below else {
                lines.entry(frames).or_default().add(weight);
                continue;
            };
            for (names, amount, operations) in below {
                let names = names.iter().map(|name| naming.name(name.clone(), stalls::FAMILY));
                let path = frames.iter().cloned().chain(names).collect();
                lines.entry(path).or_default().add(Weight { amount, operations, ..Weight::default() });
            }
        }
        Self { launches, ..naming.flame(lines, Measure::Time) }
    }

    /// Adds the idle time of the GPUs: under each GPU, what the thread that feeds it did.
    pub fn of_idle(profile: &Profile) -> Self {
        // What feeds the GPUs need not be selected.
        let (devices, profile) = (&profile.devices, profile.whole());
        let mut naming = Naming::new(profile);
        let mut lines = Lines::new();
        for info in devices.values() {
            let device = naming.name(format!("GPU {}", info.label), Family::GpuKernel);
            for (charge, weight) in &info.idle.parts {
                let charge = &idle::explained(profile, charge);
                let mut frames = vec![device.clone()];
                match charge.phase {
                    Phase::Before => frames.push(naming.name(names::BEFORE_GPU_WORK.to_owned(), Family::Unknown)),
                    Phase::Between => {}
                    Phase::After => frames.push(naming.name(names::AFTER_GPU_WORK.to_owned(), Family::Unknown)),
                }
                match charge.stack {
                    Some(stack) => frames.extend(naming.stack(charge.process, Some(stack))),
                    None => frames.extend(naming.root(charge.process)),
                }
                let doing = match charge.cause {
                    Cause::Launching => Some((names::LAUNCHING.to_owned(), Family::Wait)),
                    Cause::Waiting(_) => Some((idle::wait_reason(profile, charge), Family::Wait)),
                    Cause::Running => None,
                    Cause::Meanwhile => Some((names::MEANWHILE.to_owned(), Family::Wait)),
                    Cause::Unknown => Some(("[unknown]".to_owned(), Family::Unknown)),
                };
                frames.extend(doing.map(|(doing, family)| naming.name(doing, family)));
                let weight = Weight { amount: weight.ns, samples: weight.samples, ..Weight::default() };
                lines.entry(frames).or_default().add(weight);
            }
        }
        naming.flame(lines, Measure::Time)
    }

    /// Adds GPU memory, under the stacks that allocated it: the innermost frame is its use. If several GPUs or processes
    /// have memory, each GPU has a frame.
    pub fn of_memory(profile: &Profile, view: MemoryView) -> Self {
        let mut naming = Naming::new(profile);
        let mut lines = Lines::new();
        let several = profile.memory.devices.len() > 1;
        for (&(process, index), memory) in &profile.memory.devices {
            let label = several.then(|| format!("GPU {}", memory::label(profile, process, index)));
            let device = label.map(|label| naming.name(label, Family::GpuKernel));
            let moment = match view {
                MemoryView::Peak => &memory.peak,
                MemoryView::End => &memory.end,
            };
            for (what, stack, amount) in &moment.holders {
                let mut frames: Frames = device.iter().cloned().collect();
                frames.extend(naming.stack(process, Some(*stack)));
                frames.push(naming.name(names::memory(*what).to_owned(), Family::GpuMemory));
                let weight = Weight { amount: amount.bytes, hits: amount.count, ..Weight::default() };
                lines.entry(frames).or_default().add(weight);
            }
        }
        naming.flame(lines, Measure::Bytes)
    }

    /// Adds a counted event: the innermost frame is the place that was hit, or what was waited for.
    pub fn of_event(profile: &Profile, event: EventView) -> Self {
        let mut naming = Naming::new(profile);
        let counters = &profile.counters;
        let Some(counter) = counters.all.get(&event.counter) else { return Self::default() };
        let by_count = event.by_count || counter.weight.is_empty();
        let mut lines = Lines::new();
        for (point, process, stack, hits) in counters.of(event.counter) {
            if profile.is_injected(stack) {
                continue;
            }
            let mut frames;
            if !waits::is_off_cpu(counter) {
                frames = naming.stack(process, Some(stack));
                frames.push(naming.name(names::event(counter, point), Family::Event));
            } else if waits::without_stack(point) {
                frames = naming.root(process);
                frames.push(naming.name(point.function.clone(), Family::Wait));
            } else {
                frames = naming.stack(process, Some(stack));
                let reason = waits::reason(point, &profile.frames(stack)).to_owned();
                frames.push(naming.name(reason, Family::Wait));
            }
            let amount = if by_count { hits.count } else { hits.weight };
            lines.entry(frames).or_default().add(Weight { amount, hits: hits.count, ..Weight::default() });
        }
        naming.flame(lines, Measure::of(counter, by_count))
    }
}

/// The most lines of a flame graph to which stalls are added: some hundred bytes each.
const MOST_LINES: usize = 1 << 20;

/// Weights by stack.
type Lines = BTreeMap<Frames, Weight>;

/// Names stacks; computes each stack and each name once.
struct Naming<'a> {
    profile: &'a Profile,
    names: HashSet<Arc<str>>,
    stacks: HashMap<StackId, Vec<Arc<str>>>,
    families: BTreeMap<Arc<str>, Family>,
}

impl<'a> Naming<'a> {
    fn new(profile: &'a Profile) -> Self {
        Self { profile, names: HashSet::new(), stacks: HashMap::new(), families: BTreeMap::new() }
    }

    fn flame(self, lines: Lines, measure: Measure) -> Flame {
        let lines = lines.into_iter().map(|(frames, weight)| Line { frames, weight }).collect();
        Flame { lines, families: self.families, own: Weight::default(), measure, launches: BTreeMap::new() }
    }

    fn name(&mut self, name: String, family: Family) -> Arc<str> {
        let name = match self.names.get(name.as_str()) {
            Some(known) => known.clone(),
            None => Arc::from(name),
        };
        self.names.insert(name.clone());
        // One name, one colour: where families disagree the first in their order is used, regardless of the order of
        // stacks.
        self.families.entry(name.clone()).and_modify(|known| *known = family.min(*known)).or_insert(family);
        name
    }

    fn process(&mut self, process: ProcessId) -> Arc<str> {
        self.name(names::process(self.profile, process), Family::Process)
    }

    /// Returns the frames above those of a process: its rank, if there are several, and the process.
    fn root(&mut self, process: ProcessId) -> Frames {
        let rank = if self.profile.ranks.all.len() > 1 { self.profile.rank(process) } else { None };
        let rank = rank.map(|rank| self.name(names::rank(rank), Family::Process));
        rank.into_iter().chain([self.process(process)]).collect()
    }

    /// Returns a process and its frames; without a stack, a frame that says so.
    fn stack(&mut self, process: ProcessId, stack: Option<StackId>) -> Frames {
        self.ranged(process, stack, 0)
    }

    /// The same, with the NVTX ranges of a path between the process and its frames.
    fn ranged(&mut self, process: ProcessId, stack: Option<StackId>, range: u32) -> Frames {
        let mut frames = self.root(process);
        frames.extend(
            self.profile.ranges.path(range).into_iter().map(|name| self.name(names::range(name), Family::Range)),
        );
        match stack {
            None => frames.push(self.name(names::LAUNCH_NOT_SEEN.to_owned(), Family::Unknown)),
            Some(id) => match self.stacks.get(&id) {
                Some(known) => frames.extend(known.iter().cloned()),
                None => {
                    let named = self.profile.frames(id);
                    let known: Vec<_> = named.iter().map(|f| self.name(names::frame(f), Family::of_frame(f))).collect();
                    frames.extend(known.iter().cloned());
                    self.stacks.insert(id, known);
                }
            },
        }
        frames
    }
}
