//! Reads the events of a recording for the page: what ran on the GPUs and on the threads, and when.

use std::collections::HashMap;

use analysis::trace::reading::Reader;
use analysis::{Events, family::Family, flame_tree::View, names, waits};
use model::{
    causes::{Cause, Causes, Joined},
    event::{
        Activity, Call, Event, KernelName, Layer, Pause, PointId, ProcessId, Range, Returned, Sample, SessionId,
        StackId, Switch, Sync, Wait as Waited, Work,
    },
    profile::{GpuKey, Profile, What},
    ranges::RangedLaunches,
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{bounded::Bounded, overview::Overview, tree::Tree};

/// The most operations, samples, waits and calls in a page, of each.
const LIMIT: usize = 1 << 20;
/// The most launches whose length waits for their work.
const MOST_LAUNCHES: usize = 1 << 18;
/// The most distinct launch configurations of kernels.
const MOST_SHAPES: usize = 1 << 16;

/// The most streams and threads; what comes after them shares the last one.
const MOST_TRACKS: usize = 1 << 16;

/// An operation on a GPU.
pub struct Operation {
    pub track: u32,
    pub start: u64,
    pub duration: u64,
    pub node: u32,
    /// Time from the launch to the start.
    pub delay: u64,
    /// How long the launch took; 0 if unknown, or if an earlier operation has it.
    pub launch: u64,
    /// The thread that launched it, plus 1; 0 if the launch was not seen.
    pub thread: u32,
    /// The stack that launched it, if the node is not below it; otherwise 0.
    pub stack: u32,
    /// Bytes of a copy or memset; for a kernel, its shape.
    pub amount: u64,
}

/// A CPU sample.
pub struct CpuSample {
    pub thread: u32,
    pub time: u64,
    pub node: u32,
    pub weight: u64,
}

/// A wait for a GPU, an off-CPU interval, or an NVTX range.
pub struct Wait {
    /// A session's process for a wait for a GPU, otherwise a thread.
    pub owner: u32,
    pub start: u64,
    pub duration: u64,
    pub frame: u32,
    /// The stack; 0 if it was not collected.
    pub node: u32,
}

/// A traced call.
pub struct TracedCall {
    pub thread: u32,
    pub start: u64,
    pub duration: u64,
    pub depth: u64,
    pub frame: u32,
    /// The stack; 0 if it was not collected.
    pub node: u32,
}

/// A stream.
#[derive(Serialize)]
pub struct Track {
    pub device: u32,
    pub process: u32,
    pub context: u32,
    pub stream: u32,
}

/// A thread.
#[derive(Serialize)]
pub struct ThreadInfo {
    pub process: u32,
    pub pid: u32,
    pub tid: u32,
    pub name: String,
}

/// Everything read.
pub struct Gathered {
    pub operations: Bounded<Operation>,
    pub samples: Bounded<CpuSample>,
    /// Samples in warpscope's own code: while a GPU is idle, they say what its thread did.
    pub costs: Bounded<CpuSample>,
    pub waits: Bounded<Wait>,
    pub switches: Bounded<Wait>,
    /// NVTX ranges.
    pub ranges: Bounded<Wait>,
    pub calls: Bounded<TracedCall>,
    pub tracks: Vec<Track>,
    pub threads: Vec<ThreadInfo>,
    /// Grid, block, registers and shared memory.
    pub shapes: Vec<[u32; 8]>,
    pub overview: Overview,
}

/// Reads all events.
pub fn gather<'a>(profile: &'a Profile, view: View, events: Events<'_>, tree: &mut Tree<'a>) -> Gathered {
    let gathered = Gathered {
        operations: Bounded::new(LIMIT),
        samples: Bounded::new(LIMIT),
        costs: Bounded::new(LIMIT),
        waits: Bounded::new(LIMIT),
        switches: Bounded::new(LIMIT),
        ranges: Bounded::new(LIMIT),
        calls: Bounded::new(LIMIT),
        tracks: Vec::new(),
        threads: Vec::new(),
        shapes: Vec::new(),
        overview: Overview::new(profile),
    };
    let mut gather = Gather {
        profile,
        origin: profile.start.as_ref().map_or(0, |start| start.time),
        // Where graphs are shown by launch, no sum has the stack of a node's creation.
        by_capture: profile.gpu.keys().any(|key| key.capture.is_some()),
        tree,
        kernels: Kernels::new(profile),
        reader: Reader::for_second_pass(profile),
        tracks: FxHashMap::default(),
        threads: FxHashMap::default(),
        shapes: FxHashMap::default(),
        own: FxHashMap::default(),
        ranged: RangedLaunches::default(),
        reasons: FxHashMap::default(),
        took: FxHashMap::default(),
        all: gathered,
    };
    gather.events(view, events);
    gather.all
}

struct Gather<'a, 'b> {
    profile: &'a Profile,
    origin: u64,
    by_capture: bool,
    tree: &'b mut Tree<'a>,
    kernels: Kernels<'a>,
    reader: Reader,
    tracks: FxHashMap<(u32, SessionId, u32, u32), u32>,
    threads: FxHashMap<(ProcessId, u32), u32>,
    shapes: FxHashMap<[u32; 8], u64>,
    own: FxHashMap<StackId, bool>,
    ranged: RangedLaunches,
    /// The frame and the node of waits.
    reasons: FxHashMap<(ProcessId, StackId, PointId), (u32, u32)>,
    /// How long launches took whose work has not been seen yet.
    took: FxHashMap<(SessionId, u32), u64>,
    all: Gathered,
}

impl Gather<'_, '_> {
    fn events(&mut self, view: View, events: Events<'_>) {
        let mut causes = Causes::default();
        for event in events {
            self.reader.learn(&event);
            match event {
                Event::Launch(launch) if view.gpu => causes.launch(&launch, |cause| self.cause(cause)),
                Event::Returned(returned) if view.gpu => self.returned(&returned),
                Event::Activity(activity) if view.gpu => causes.activity(&activity, |cause| self.cause(cause)),
                Event::Sync(sync) if view.gpu => self.sync(&sync),
                Event::Pause(pause) if view.gpu => self.pause(&pause),
                Event::Sample(sample) if view.cpu => self.sample(&sample),
                Event::KernelName(name) => self.kernels.learn(&name),
                Event::Call(call) => self.call(&call),
                Event::Switch(switch) => self.switch(&switch),
                Event::Wait(wait) if view.waits => self.wait(&wait),
                Event::RangedLaunch(launch) => self.ranged.note(&launch, &self.profile.ranges),
                Event::Range(range) if !range.mark => self.range(&range),
                other => causes.note(&other),
            }
        }
        causes.finish(|cause| self.cause(cause));
    }

    fn at(&self, time: u64) -> u64 {
        time.saturating_sub(self.origin)
    }

    fn returned(&mut self, returned: &Returned) {
        // Some launches never have work.
        if self.took.len() == MOST_LAUNCHES {
            self.took.clear();
        }
        self.took.insert((returned.session, returned.correlation), returned.took);
    }

    fn cause(&mut self, cause: Cause<'_>) {
        let Cause::Ran(Joined { launch, activity, capture }) = cause else { return };
        // Without times it has no position on a timeline; the ledger counts it.
        if activity.start == 0 || activity.end < activity.start {
            return;
        }
        let device = self.profile.device(activity.session, activity.device);
        let (what, amount) = match activity.work {
            Work::Kernel { name, grid, block, registers, shared_memory } => {
                let [(a, b, c), (d, e, f)] = [grid, block].map(|[x, y, z]| (x, y, z));
                let shape = self.shape([a, b, c, d, e, f, u32::from(registers), shared_memory]);
                (What::Kernel(self.kernels.index(activity.session, name)), shape)
            }
            Work::Copy { direction, bytes, .. } => {
                (What::Copy(direction, bytes.checked_ilog2().map_or(0, |power| 1 << power)), bytes)
            }
            Work::Memset { bytes, .. } => (What::Memset, bytes),
        };
        let session = self.profile.sessions.get(&activity.session).map_or(ProcessId(0), |session| session.process);
        let process = launch.map_or(session, |launch| launch.process);
        let capture = capture.filter(|_| self.by_capture);
        let range = self.ranged.of(activity);
        let stack = launch.map(|launch| launch.stack);
        let stream = activity.stream;
        let node = self.tree.work(&GpuKey { process, stack, capture, what, device, stream, range });
        let track = self.track(activity, device, session);
        let thread = launch.map_or(0, |launch| self.thread(launch.process, launch.tid) + 1);
        let launching = launch.map_or(0, |launch| self.tree.stack(launch.process, Some(launch.stack)));
        let stack = if capture.is_none() && range == 0 { 0 } else { launching };
        let (start, duration) = (self.at(activity.start), activity.duration());
        self.all.overview.gpu(device, start, duration);
        let delay = launch.map_or(0, |launch| activity.start.saturating_sub(launch.time));
        let launch = launch.and_then(|launch| self.took.remove(&(launch.session, launch.correlation))).unwrap_or(0);
        self.all.operations.push(Operation { track, start, duration, node, delay, launch, thread, stack, amount });
    }

    /// Returns the number of a shape, plus 1; 0 if there are too many.
    fn shape(&mut self, shape: [u32; 8]) -> u64 {
        if let Some(&known) = self.shapes.get(&shape) {
            return known;
        }
        if self.all.shapes.len() == MOST_SHAPES {
            return 0;
        }
        self.all.shapes.push(shape);
        let number = self.all.shapes.len() as u64;
        self.shapes.insert(shape, number);
        number
    }

    fn track(&mut self, activity: &Activity, device: u32, process: ProcessId) -> u32 {
        let Activity { session, context, stream, .. } = *activity;
        let key = (device, session, context, stream);
        if let Some(&track) = self.tracks.get(&key) {
            return track;
        }
        if self.tracks.len() < MOST_TRACKS {
            self.tracks.insert(key, self.all.tracks.len() as u32);
            self.all.tracks.push(Track { device, process: process.0, context, stream });
        }
        self.all.tracks.len() as u32 - 1
    }

    fn thread(&mut self, process: ProcessId, tid: u32) -> u32 {
        if let Some(&thread) = self.threads.get(&(process, tid)) {
            return thread;
        }
        if self.threads.len() < MOST_TRACKS {
            self.threads.insert((process, tid), self.all.threads.len() as u32);
            let info = self.profile.processes.get(&process);
            let comm = info.map_or_else(String::new, |info| info.comm.clone());
            let name = self.profile.threads.get(&(process, tid)).cloned().unwrap_or(comm);
            let pid = info.map_or(0, |info| info.pid);
            self.all.threads.push(ThreadInfo { process: process.0, pid, tid, name });
        }
        self.all.threads.len() as u32 - 1
    }

    fn sync(&mut self, sync: &Sync) {
        if sync.start == 0 || sync.end < sync.start {
            return;
        }
        let owner = self.profile.sessions.get(&sync.session).map_or(0, |session| session.process.0);
        let frame = self.tree.frame(names::sync(sync.kind), Family::Wait);
        let start = self.at(sync.start);
        self.all.waits.push(Wait { owner, start, duration: sync.end - sync.start, frame, node: 0 });
    }

    /// Adds a time without records, once its end is known.
    fn pause(&mut self, pause: &Pause) {
        if pause.to == u64::MAX {
            return;
        }
        let owner = self.profile.sessions.get(&pause.session).map_or(0, |session| session.process.0);
        let frame = self.tree.frame(&names::pause(pause), Family::Wait);
        let (start, duration) = (self.at(pause.from), pause.to.saturating_sub(pause.from));
        self.all.waits.push(Wait { owner, start, duration, frame, node: 0 });
    }

    fn sample(&mut self, sample: &Sample) {
        let node = self.tree.sample(sample.process, sample.stack);
        let (thread, time) = (self.thread(sample.process, sample.tid), self.at(sample.time));
        let made = CpuSample { thread, time, node, weight: sample.weight };
        // Its own cost is not the program's.
        if *self.own.entry(sample.stack).or_insert_with(|| self.profile.is_own_cost(sample.stack)) {
            return self.all.costs.push(made);
        }
        self.all.overview.cpu(time, sample.weight);
        self.all.samples.push(made);
    }

    fn call(&mut self, call: &Call) {
        let Some(reading) = self.reader.read(call) else { return };
        let family = if reading.function.layer == Layer::Library { Family::Native } else { Family::OsKernel };
        let frame = self.tree.frame(&names::clean(&reading.function.name), family);
        let node = call.stack.map_or(0, |stack| self.tree.stack(call.process, Some(stack)));
        let end =
            if call.end == 0 && reading.function.layer != Layer::Point { self.profile.last_time } else { call.end };
        let (start, duration) = (self.at(call.start), end.saturating_sub(call.start));
        let thread = self.thread(call.process, call.tid);
        self.all.calls.push(TracedCall { thread, start, duration, depth: call.depth.into(), frame, node });
    }

    fn range(&mut self, range: &Range) {
        let ranges = &self.profile.ranges;
        let path = ranges.path(ranges.number(range.session, range.path));
        let frame = self.tree.frame(&names::range(path.last().unwrap_or(&"")), Family::Range);
        let process = self.profile.sessions.get(&range.session).map_or(ProcessId(0), |session| session.process);
        let (owner, start) = (self.thread(process, range.tid), self.at(range.start));
        let duration = range.end.saturating_sub(range.start);
        self.all.ranges.push(Wait { owner, start, duration, frame, node: 0 });
    }

    fn switch(&mut self, switch: &Switch) {
        let frame = self.tree.frame(if switch.preempted { "preempted" } else { "off the CPU" }, Family::Wait);
        let (owner, start) = (self.thread(switch.process, switch.tid), self.at(switch.start));
        let node = switch.stack.map_or(0, |stack| self.tree.stack(switch.process, Some(stack)));
        let duration = switch.end.saturating_sub(switch.start);
        self.all.switches.push(Wait { owner, start, duration, frame, node });
    }

    fn wait(&mut self, wait: &Waited) {
        let &Waited { process, tid, stack, reason, .. } = wait;
        let (profile, tree) = (self.profile, &mut *self.tree);
        let known = self.reasons.entry((process, stack, reason)).or_insert_with(|| {
            let reason = waits::reason_of(profile, reason, Some(stack));
            (tree.frame(reason, Family::Wait), tree.wait(process, stack, reason))
        });
        let (frame, node) = *known;
        let (owner, start) = (self.thread(process, tid), self.at(wait.start));
        let duration = wait.end.saturating_sub(wait.start);
        self.all.switches.push(Wait { owner, start, duration, frame, node });
    }
}

/// Kernels by session and id, as indices of the profile's names.
struct Kernels<'a> {
    by_name: HashMap<&'a str, u32>,
    known: FxHashMap<(SessionId, u32), u32>,
}

impl<'a> Kernels<'a> {
    fn new(profile: &'a Profile) -> Self {
        let by_name = profile.kernel_names.iter().zip(0..).map(|(name, index)| (&*name.mangled, index)).collect();
        Self { by_name, known: FxHashMap::default() }
    }

    fn learn(&mut self, kernel: &KernelName) {
        let index = self.by_name.get(kernel.name.as_str()).copied().unwrap_or(u32::MAX);
        self.known.insert((kernel.session, kernel.id), index);
    }

    fn index(&self, session: SessionId, id: u32) -> u32 {
        self.known.get(&(session, id)).copied().unwrap_or(u32::MAX)
    }
}
