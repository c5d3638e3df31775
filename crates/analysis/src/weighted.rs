//! Stacks with all their weights: the source of formats with several sample types (pprof, speedscope).
//!
//! The stacks, their totals and their rows are those of the flame graphs. Names are not changed, because these formats can
//! contain any; and rows are divided further, by thread, device and stream.

pub mod series;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use model::{
    event::{CounterId, Event, FrameKind, NamedFrame, ProcessId, StackId},
    profile::{Profile, What},
};
use text::short::split_place;

use crate::{
    Events,
    flame_tree::{Measure, View},
    names::{self, GpuFrames},
    stalls::leaves::Leaves,
    waits,
};

/// A kind of weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// A short name, such as `gpu`.
    pub name: String,
    /// The unit of its amounts.
    pub measure: Measure,
}

/// A frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The function, the process, or the work of the GPU.
    pub name: Arc<str>,
    /// The source file, if it is known.
    pub file: Arc<str>,
    /// The line in it, or 0.
    pub line: u64,
    /// The file name of the program or library, if it is known.
    pub module: Arc<str>,
}

/// Where a stack ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The image.
    pub process: ProcessId,
    /// The thread, where it is known.
    pub tid: Option<u32>,
    /// The device, for GPU work.
    pub device: Option<u32>,
    /// The stream, for GPU work.
    pub stream: Option<u32>,
}

/// A stack and its weights.
#[derive(Debug)]
pub struct Row {
    /// Where it ran.
    pub origin: Origin,
    /// Indexes of its frames, outermost first.
    pub frames: Vec<u32>,
    /// One amount for each [`Kind`].
    pub amounts: Vec<u64>,
}

/// All stacks of a recording.
pub struct Weighted {
    /// What is weighed.
    pub kinds: Vec<Kind>,
    /// The frames of all stacks, each once.
    pub frames: Vec<Frame>,
    /// Sorted by origin.
    pub rows: Vec<Row>,
}

impl Weighted {
    /// Gathers the stacks that a view shows.
    pub fn of(profile: &Profile, view: View, events: Events<'_>) -> Self {
        let mut gather = Gather::new(profile, GpuFrames::new(profile));
        if let Some(event) = view.event {
            gather.event(event.counter, event.by_count);
            return gather.finish();
        }
        if view.gpu {
            gather.gpu("gpu", Some("operations"), |_| true);
        }
        if view.cpu || view.gpu {
            gather.by_thread(view, events);
        }
        if view.waits {
            for counter in profile.counters.all.values() {
                gather.event(counter.id, false);
            }
        }
        gather.finish()
    }

    /// Returns the index of the kind to show first: the first that is not empty.
    pub fn first(&self) -> usize {
        let used = |kind: usize| self.rows.iter().any(|row| row.amounts.get(kind).is_some_and(|amount| *amount > 0));
        (0..self.kinds.len()).find(|kind| used(*kind)).unwrap_or(0)
    }
}

struct Gather<'a> {
    profile: &'a Profile,
    gpu_frames: GpuFrames<'a>,
    /// Several ranks have frames of their own.
    has_ranks: bool,
    kinds: Vec<Kind>,
    frames: Vec<Frame>,
    known: HashMap<Frame, u32>,
    stacks: HashMap<StackId, Vec<u32>>,
    rows: BTreeMap<(Origin, Vec<u32>), Vec<u64>>,
}

impl<'a> Gather<'a> {
    fn new(profile: &'a Profile, gpu_frames: GpuFrames<'a>) -> Self {
        let (known, stacks) = (HashMap::new(), HashMap::new());
        let has_ranks = profile.ranks.all.len() > 1;
        let (kinds, frames, rows) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { profile, gpu_frames, has_ranks, kinds, frames, known, stacks, rows }
    }

    fn finish(self) -> Weighted {
        let Self { kinds, frames, rows, .. } = self;
        let rows = rows.into_iter().map(|((origin, frames), mut amounts)| {
            amounts.resize(kinds.len(), 0);
            Row { origin, frames, amounts }
        });
        Weighted { rows: rows.collect(), kinds, frames }
    }

    fn kind(&mut self, name: &str, measure: Measure) -> usize {
        self.kinds.push(Kind { name: name.to_owned(), measure });
        self.kinds.len() - 1
    }

    fn add(&mut self, origin: Origin, frames: Vec<u32>, kind: usize, amount: u64) {
        let amounts = self.rows.entry((origin, frames)).or_default();
        amounts.resize(amounts.len().max(kind + 1), 0);
        amounts[kind] = amounts[kind].saturating_add(amount);
    }

    /// Adds the selected GPU work under the stacks that launched it, or that created the nodes of a graph: its time and, if that
    /// has a name, its operations.
    fn gpu(&mut self, time: &str, operations: Option<&str>, selects: impl Fn(What) -> bool) {
        let time = self.kind(time, Measure::Time);
        let operations = operations.map(|name| self.kind(name, Measure::Number));
        let leaves = Leaves::of(self.profile);
        let mut work: Vec<_> = self.profile.gpu.iter().filter(|(key, _)| selects(key.what)).collect();
        work.sort_unstable_by_key(|(key, _)| **key);
        for (key, weight) in work {
            let mut frames = self.ranged(key.process, key.capture.or(key.stack), key.range);
            if key.capture.is_some() {
                frames.push(self.own(names::GRAPH_REPLAY.to_owned()));
            }
            frames.push(self.own(self.gpu_frames.raw_name(key.device, key.what)));
            let origin = Origin { process: key.process, tid: None, device: Some(key.device), stream: Some(key.stream) };
            let Some(below) = leaves.divide(key, weight) else {
                self.work(origin, frames, (time, weight.ns), (operations, weight.count));
                continue;
            };
            for (names, ns, count) in below {
                let path: Vec<u32> =
                    frames.iter().copied().chain(names.iter().map(|name| self.own(name.clone()))).collect();
                self.work(origin, path, (time, ns), (operations, count));
            }
        }
    }

    fn work(&mut self, origin: Origin, path: Vec<u32>, time: (usize, u64), operations: (Option<usize>, u64)) {
        if let (Some(kind), count) = operations {
            self.add(origin, path.clone(), kind, count);
        }
        self.add(origin, path, time.0, time.1);
    }

    /// Adds CPU samples and launches, which events have by thread.
    fn by_thread(&mut self, view: View, events: Events<'_>) {
        let mut samples: HashMap<(ProcessId, u32, StackId), u64> = HashMap::new();
        let mut launches: HashMap<(ProcessId, u32, StackId), u64> = HashMap::new();
        let mut counted: BTreeMap<ProcessId, u64> = BTreeMap::new();
        for event in events {
            match event {
                Event::Sample(sample) if view.cpu => {
                    let sum = samples.entry((sample.process, sample.tid, sample.stack)).or_default();
                    *sum = sum.saturating_add(sample.weight);
                }
                Event::Launch(launch) if view.gpu => {
                    *launches.entry((launch.process, launch.tid, launch.stack)).or_default() += 1;
                }
                Event::Counted(event) if view.gpu => {
                    let process = self.profile.sessions.get(&event.session).map_or(ProcessId(0), |info| info.process);
                    let sum = counted.entry(process).or_default();
                    *sum = sum.saturating_add(event.count);
                }
                _ => {}
            }
        }
        // The ledger does not count these either.
        for (thread, after) in &self.profile.launched_after_end {
            launches.entry(*thread).and_modify(|count| *count = count.saturating_sub(*after));
        }
        if view.cpu {
            let kind = self.kind("cpu", Measure::Time);
            let mut samples: Vec<_> = samples.into_iter().collect();
            samples.sort_unstable();
            for ((process, tid, stack), ns) in samples.into_iter().filter(|row| !self.profile.is_own_cost(row.0.2)) {
                let mut frames = self.stack(process, Some(stack));
                if let Some(reason) = waits::spinning(&self.profile.frames(stack)) {
                    frames.push(self.own(reason.to_owned()));
                }
                self.add(Origin { process, tid: Some(tid), ..Origin::default() }, frames, kind, ns);
            }
        }
        if view.gpu {
            let kind = self.kind("launches", Measure::Number);
            let mut launches: Vec<_> = launches.into_iter().collect();
            launches.sort_unstable();
            for ((process, tid, stack), count) in launches {
                let frames = self.stack(process, Some(stack));
                self.add(Origin { process, tid: Some(tid), ..Origin::default() }, frames, kind, count);
            }
            for (process, count) in counted {
                let frames = self.stack(process, Some(StackId::NOT_SAMPLED));
                self.add(Origin { process, ..Origin::default() }, frames, kind, count);
            }
        }
    }

    /// Adds a counted event, or the time off the CPU.
    fn event(&mut self, id: CounterId, by_count: bool) {
        let counters = &self.profile.counters;
        let Some(counter) = counters.all.get(&id) else { return };
        let is_wait = waits::is_off_cpu(counter);
        let by_count = by_count || counter.weight.is_empty();
        let name = if is_wait { "wait" } else { &counter.name };
        let kind = self.kind(name, Measure::of(counter, by_count));
        let mut hits: Vec<_> = counters.of(id).collect();
        hits.sort_unstable_by_key(|(point, process, stack, _)| (point.id, *process, *stack));
        for (point, process, stack, hits) in hits {
            if self.profile.is_injected(stack) {
                continue;
            }
            let mut frames;
            if is_wait && waits::without_stack(point) {
                frames = self.root(process);
                frames.push(self.own(point.function.clone()));
            } else {
                frames = self.stack(process, Some(stack));
                let last = match is_wait {
                    true => waits::reason(point, &self.profile.frames(stack)).to_owned(),
                    false => names::event(counter, point),
                };
                frames.push(self.own(last));
            }
            let amount = if by_count { hits.count } else { hits.weight };
            self.add(Origin { process, ..Origin::default() }, frames, kind, amount);
        }
    }

    /// Returns the frames of a process: its rank, if there are several, and its name.
    fn root(&mut self, process: ProcessId) -> Vec<u32> {
        let rank = if self.has_ranks { self.profile.rank(process) } else { None };
        let rank = rank.map(|rank| self.own(names::rank(rank)));
        rank.into_iter().chain([self.own(names::process(self.profile, process))]).collect()
    }

    fn stack(&mut self, process: ProcessId, stack: Option<StackId>) -> Vec<u32> {
        self.ranged(process, stack, 0)
    }

    /// Returns the frames of a process, of the NVTX ranges of a path, and of a stack.
    fn ranged(&mut self, process: ProcessId, stack: Option<StackId>, range: u32) -> Vec<u32> {
        let mut frames = self.root(process);
        frames.extend(self.profile.ranges.path(range).into_iter().map(|name| self.own(format!("[nvtx: {name}]"))));
        let Some(id) = stack else {
            frames.push(self.own(names::LAUNCH_NOT_SEEN.to_owned()));
            return frames;
        };
        if !self.stacks.contains_key(&id) {
            let named: Vec<u32> = self.profile.frames(id).iter().map(|frame| self.frame(frame)).collect();
            self.stacks.insert(id, named);
        }
        frames.extend(&self.stacks[&id]);
        frames
    }

    /// Returns the index of a frame that is not a function of the program.
    fn own(&mut self, name: String) -> u32 {
        self.index(Frame { name: name.into(), ..Frame::default() })
    }

    fn frame(&mut self, frame: &NamedFrame) -> u32 {
        let text = names::raw_frame(frame);
        let (function, place) = split_place(&text);
        let place = place.strip_prefix(" (").and_then(|place| place.strip_suffix(')'));
        let (file, line) = place.and_then(|place| place.rsplit_once(':')).unwrap_or_default();
        let python = frame.kind == FrameKind::Python;
        // The place has only the name of the file; a Python frame has its path too.
        let file = if python && !frame.module.is_empty() { frame.module.clone() } else { file.into() };
        let module = if python { Arc::default() } else { frame.module.clone() };
        self.index(Frame { name: function.into(), file, line: line.parse().unwrap_or(0), module })
    }

    fn index(&mut self, frame: Frame) -> u32 {
        if let Some(&known) = self.known.get(&frame) {
            return known;
        }
        let index = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.known.insert(frame, index);
        index
    }
}
