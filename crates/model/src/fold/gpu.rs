//! GPU time by stack and by operation.

use std::{hash::Hash, sync::Arc};

use cuda::occupancy::Shape;
use rustc_hash::FxHashMap;

use super::{
    blame::{Evidence, Feed},
    busy::TimeRange,
    communication::CommunicationWork,
    counter_samples::CounterSamples,
    devices::Devices,
    energy::Meters,
    measured::MeasuredLaunches,
    ranks::RankWork,
    stalled::StalledLaunches,
};
use crate::{
    budget::Budget,
    causes::Joined,
    event::{
        Activity, Device, Direction, KernelName, Launch, LaunchKind, LossCause, ProcessId, Sample, SessionId, StackId,
        Uuid, Wait, Work,
    },
    gpu_counters::CounterSums,
    ledger::Ledger,
    limits::LimitKey,
    profile::{GpuKey, GpuWeight, KernelText, OTHER_DEVICE, Profile, What},
    ranges::RangedLaunches,
    ranks::is_communication,
};

/// Stands for a kernel whose name was lost: the session's table was full, or the recording lacks the name.
pub const NAME_LOST: &str = "[kernel name lost]";

/// Stands for kernels that are summed together because there were too many distinct sums.
pub const MERGED: &str = "[other kernels]";

/// The maximum number of distinct sums of all kinds, in total and per process: about 100 MB.
const MAX_SUMS: u64 = 900_000;
const MAX_SUMS_OF_PROCESS: u64 = 225_000;
/// What a sum of the work that launches stand for counts as: [`super::spread`] needs it in three places.
const STANDS_FOR: u64 = 4;
/// The maximum number of streams that are counted.
const MAX_STREAMS: usize = 65_536;
/// The number of streams that are found without a lookup.
const RECENT: usize = 32;

/// The maximum number of kernels whose shapes are kept, and of shapes of each: about 40 MB.
const MAX_SHAPED: usize = 8192;
const MAX_SHAPES: usize = 64;

/// Kernel names: each distinct text is stored once for all sessions.
#[derive(Default)]
pub struct KernelNames {
    /// From (session, the session's id) to the index in `texts`.
    known: FxHashMap<(SessionId, u32), u32>,
    by_text: FxHashMap<Arc<str>, u32>,
    texts: Vec<KernelText>,
    /// Whether each is a communication kernel.
    communicate: Vec<bool>,
}

impl KernelNames {
    pub fn define(&mut self, name: &KernelName) {
        let index = self.intern(&name.name);
        self.known.insert((name.session, name.id), index);
    }

    #[inline]
    pub fn index(&mut self, session: SessionId, id: u32) -> u32 {
        match self.known.get(&(session, id)) {
            Some(index) => *index,
            None => self.intern(NAME_LOST),
        }
    }

    /// Returns the index and the text of a name.
    pub fn indexed(&mut self, session: SessionId, id: u32) -> (u32, &str) {
        let index = self.index(session, id);
        (index, self.texts.get(index as usize).map_or(NAME_LOST, |text| &text.mangled))
    }

    /// Whether it is the name of a communication kernel.
    fn communicates(&self, index: u32) -> bool {
        self.communicate.get(index as usize).is_some_and(|communicates| *communicates)
    }

    fn intern(&mut self, name: &str) -> u32 {
        if let Some(index) = self.by_text.get(name) {
            return *index;
        }
        let text: Arc<str> = name.into();
        let index = self.texts.len() as u32;
        self.communicate.push(is_communication(name));
        self.texts.push(KernelText { mangled: text.clone(), text: text.clone() });
        self.by_text.insert(text, index);
        index
    }

    pub fn into_texts(self) -> Vec<KernelText> {
        self.texts
    }
}

/// The room for sums.
struct Room(Budget);

impl Default for Room {
    fn default() -> Self {
        Self(Budget::new(MAX_SUMS_OF_PROCESS, MAX_SUMS))
    }
}

impl Room {
    /// Whether these sums have one with this key, or room for it.
    #[inline]
    fn admits<K: Eq + Hash>(
        &mut self,
        sums: &FxHashMap<K, GpuWeight>,
        key: &K,
        (process, costs): (ProcessId, u64),
    ) -> bool {
        sums.contains_key(key) || self.0.take(process, costs)
    }
}

/// All sums over activities.
#[derive(Default)]
pub struct GpuTime {
    pub names: KernelNames,
    pub weights: FxHashMap<GpuKey, GpuWeight>,
    /// The work without a stack that sampled launches stand for, if stacks are sampled.
    pub stands_for: FxHashMap<GpuKey, GpuWeight>,
    /// The part of the sums that was launched by graphs.
    pub graphs: FxHashMap<GpuKey, GpuWeight>,
    /// The room for all of those sums, and the next ones.
    room: Room,
    /// Copies from and to memory that is not pinned.
    pub pageable: FxHashMap<(ProcessId, Option<StackId>, Direction), GpuWeight>,
    /// The shapes of kernels, by device and index of the name: one lookup for both.
    shapes: FxHashMap<(Kernel, Shape), GpuWeight>,
    /// The number of shapes of each kernel.
    shaped: FxHashMap<Kernel, usize>,
    /// Launches after the end of the recording whose work was not reported: not part of it.
    pub launched_after_end: u64,
    /// Operations that did not get a sum of their own in `weights`.
    pub merged: u64,
    devices: Devices,
    /// The NVTX range of each launch.
    pub ranged: RangedLaunches,
    /// The launches of samples, if kernels are serialised.
    pub stalled: StalledLaunches,
    /// Launches that were measured with hardware counters.
    pub measured: MeasuredLaunches,
    /// The work of each rank.
    pub ranks: RankWork,
    /// What communicators did.
    pub communication: CommunicationWork,
    /// The energy counters of the GPUs.
    pub meters: Meters,
    /// The counters of the GPUs over time.
    pub counters: CounterSums,
    /// Their samples by kernel.
    pub counter_samples: CounterSamples,
    /// What threads did, to explain why devices were idle.
    pub evidence: Evidence,
    /// Every stream seen, with the slot of its device: one lookup for both.
    streams: FxHashMap<StreamKey, u32>,
    /// Streams of recent activities, each at its [`place`].
    recent_streams: [Option<(StreamKey, u32)>; RECENT],
}

/// (device, index of the name)
type Kernel = (u32, u32);

/// (session, the session's device index, context, stream)
type StreamKey = (SessionId, u32, u32, u32);

impl GpuTime {
    /// Starts with nothing, and counts the busy and idle time of devices in a part of the time.
    pub fn within(range: TimeRange) -> Self {
        Self { devices: Devices::within(range), ..Self::default() }
    }

    /// Starts with nothing, and charges the idle time of devices in each of some parts of the time as well.
    pub fn with_parts(parts: Vec<TimeRange>) -> Self {
        Self { devices: Devices::with_parts(parts), ..Self::default() }
    }

    /// Adds what does not depend on the launch of an activity, when the activity arrives.
    #[inline]
    pub fn receive(&mut self, activity: &Activity, ledger: &mut Ledger) {
        match activity.work {
            Work::Kernel { .. } => {
                ledger.kernels += 1;
                ledger.kernel_ns = ledger.kernel_ns.saturating_add(activity.duration());
            }
            Work::Copy { .. } => ledger.copies += 1,
            Work::Memset { .. } => ledger.memsets += 1,
        }
        count_times(activity.start, activity.end, ledger);
        if !self.ranks.is_empty() {
            let names = &mut self.names;
            self.ranks.activity(activity, || match activity.work {
                Work::Kernel { name, .. } => Some(names.indexed(activity.session, name)),
                Work::Copy { .. } | Work::Memset { .. } => None,
            });
        }
        let Activity { session, device, context, stream, .. } = *activity;
        if self.stream((session, device, context, stream)).is_none() {
            *ledger.lost.causes.entry(LossCause::DevicesRefused).or_default() += 1;
        }
    }

    /// Returns the slot of a stream's device; `None` if there are too many devices.
    #[inline]
    fn stream(&mut self, key: StreamKey) -> Option<u32> {
        match self.recent_streams[place(key)] {
            Some((recent, slot)) if recent == key => Some(slot),
            _ => {
                let slot = self.streams.get(&key).copied().or_else(|| self.add_stream(key))?;
                self.recent_streams[place(key)] = Some((key, slot));
                Some(slot)
            }
        }
    }

    /// Adds a new stream, possibly on a new device; `None` if there are too many devices.
    #[cold]
    fn add_stream(&mut self, key: StreamKey) -> Option<u32> {
        let slot = self.devices.slot(key.0, key.1)?;
        if self.streams.len() < MAX_STREAMS {
            self.streams.insert(key, slot);
        }
        Some(slot)
    }

    /// Adds an activity whose launch is now certain, or certain to stay unknown.
    #[inline]
    pub fn settle(&mut self, joined: &Joined<'_>, process: ProcessId, range: u32) {
        let &Joined { launch, activity, capture } = joined;
        let (what, bytes) = match activity.work {
            Work::Kernel { name, .. } => (What::Kernel(self.names.index(activity.session, name)), 0),
            Work::Copy { direction, bytes, .. } => (What::Copy(direction, size_class(bytes)), bytes),
            Work::Memset { bytes, .. } => (What::Memset, bytes),
        };
        let Activity { session, device, context, stream, start, end, .. } = *activity;
        // Until the fold ends, the device is the number of its slot.
        let device = self.stream((session, device, context, stream)).unwrap_or(OTHER_DEVICE);
        if let (What::Kernel(kernel), Work::Kernel { grid, block, registers, shared_memory, .. }) =
            (what, activity.work)
            && self.add_shape((device, kernel), Shape::of(grid, block, registers, shared_memory), activity.duration())
            && let Some(launch) = launch
        {
            self.evidence.first_use(launch);
        }
        if !self.measured.is_empty() {
            self.add_measured(joined, process, device, what);
        }
        if what.kernel().is_some_and(|kernel| self.names.communicates(kernel)) {
            self.communication.ran(joined);
        }
        if start != 0 && device != OTHER_DEVICE {
            let feed = Feed::of(launch);
            self.devices.add_busy(device, start, end, feed, &mut self.evidence);
            if matches!(what, What::Kernel(_)) {
                self.devices.add_kernel(device, start, end, feed);
            }
        }
        let mut key = GpuKey { process, stack: launch.map(|l| l.stack), capture, what, device, stream, range };
        let weight = match self.weights.get_mut(&key) {
            Some(weight) => weight,
            None => {
                key = self.new_key(key);
                self.weights.entry(key).or_default()
            }
        };
        let ns = activity.duration();
        weight.count += 1;
        weight.ns = weight.ns.saturating_add(ns);
        weight.max_ns = weight.max_ns.max(ns);
        weight.bytes = weight.bytes.saturating_add(bytes);
        if !self.meters.is_empty() && start != 0 {
            self.add_energy(key, start, end);
        }
        if !self.counter_samples.is_empty()
            && start != 0
            && let Some(gpu) = self.devices.gpu(device)
        {
            self.counter_samples.add(gpu, start, end, what.kernel());
        }
        let work = GpuWeight { count: 1, ns, max_ns: ns, bytes, microjoules: 0 };
        if let Some(direction) = pageable(&activity.work) {
            self.add_pageable((process, key.stack, direction), &work);
        }
        if let Some(launch) = launch.filter(|launch| launch.kind == LaunchKind::Graph || launch.rate > 0) {
            self.add_launched(key, launch, &work);
        }
    }

    /// Notes the kernel of a launch that was measured.
    #[cold]
    fn add_measured(&mut self, joined: &Joined<'_>, process: ProcessId, device: u32, what: What) {
        let &Joined { launch, activity, .. } = joined;
        let (What::Kernel(kernel), Work::Kernel { grid, block, registers, shared_memory, .. }) = (what, activity.work)
        else {
            return;
        };
        let Some(launch) = launch else { return };
        let key = || LimitKey {
            process,
            stack: launch.stack,
            kernel,
            device,
            shape: Shape::of(grid, block, registers, shared_memory),
        };
        self.measured.ran((activity.session, activity.correlation), key, activity.duration());
    }

    /// Adds a copy from or to memory that is not pinned.
    #[cold]
    fn add_pageable(&mut self, key: (ProcessId, Option<StackId>, Direction), work: &GpuWeight) {
        let (process, _, direction) = key;
        let own = self.room.admits(&self.pageable, &key, (process, 1));
        let key = if own { key } else { (process, Some(StackId(0)), direction) };
        self.pageable.entry(key).or_default().add(work);
    }

    /// Adds work to that of graphs, and to that without a stack that its launch stands for.
    #[cold]
    fn add_launched(&mut self, key: GpuKey, launch: &Launch, work: &GpuWeight) {
        if launch.kind == LaunchKind::Graph {
            let own = self.room.admits(&self.graphs, &key, (key.process, 1));
            let key = if own { key } else { self.shared_sum(key) };
            let weight = self.graphs.entry(key).or_default();
            weight.count += 1;
            weight.ns = weight.ns.saturating_add(work.ns);
            weight.bytes = weight.bytes.saturating_add(work.bytes);
        }
        if launch.rate > 0 {
            let others = (1_u64 << launch.rate.min(15)) - 1;
            let own = self.room.admits(&self.stands_for, &key, (key.process, STANDS_FOR));
            let key = if own { key } else { self.shared_sum(key) };
            let weight = self.stands_for.entry(key).or_default();
            weight.count = weight.count.saturating_add(others);
            weight.ns = weight.ns.saturating_add(work.ns.saturating_mul(others));
            weight.bytes = weight.bytes.saturating_add(work.bytes.saturating_mul(others));
        }
    }

    /// Adds a run of a kernel to those of the same shape. Beyond the limits, shapes are not kept. Returns whether it is the
    /// first run of the kernel on its device.
    #[inline]
    fn add_shape(&mut self, kernel: Kernel, shape: Shape, ns: u64) -> bool {
        let run = GpuWeight { count: 1, ns, max_ns: ns, ..GpuWeight::default() };
        if let Some(weight) = self.shapes.get_mut(&(kernel, shape)) {
            weight.add(&run);
            return false;
        }
        let known = self.shaped.len();
        if self.admits_shape(kernel) {
            self.shapes.insert((kernel, shape), run);
        }
        self.shaped.len() > known
    }

    /// Counts another shape of a kernel, if there is room.
    #[cold]
    fn admits_shape(&mut self, kernel: Kernel) -> bool {
        let room = self.shaped.len() < MAX_SHAPED;
        let count = match self.shaped.get_mut(&kernel) {
            Some(count) => count,
            None if room => self.shaped.entry(kernel).or_default(),
            None => return false,
        };
        let room = *count < MAX_SHAPES;
        *count += usize::from(room);
        room
    }

    /// Adds a sample, which may explain why a device was idle.
    #[inline]
    pub fn sample(&mut self, sample: &Sample) {
        self.evidence.sample(sample);
        if self.evidence.is_full() {
            self.devices.use_older_half(&mut self.evidence);
        }
    }

    /// Adds a wait, which may explain the same.
    pub fn wait(&mut self, wait: &Wait) {
        self.evidence.wait(wait);
        if self.evidence.is_full() {
            self.devices.use_older_half(&mut self.evidence);
        }
    }

    /// Returns the key of a sum that does not exist yet: its own or, beyond the limits, the shared one of its process.
    #[cold]
    fn new_key(&mut self, key: GpuKey) -> GpuKey {
        if self.room.0.take(key.process, 1) {
            return key;
        }
        self.merged += 1;
        self.shared_sum(key)
    }

    /// Returns the key of the sum that is shared by what does not get one of its own.
    fn shared_sum(&mut self, key: GpuKey) -> GpuKey {
        let what = What::Kernel(self.names.intern(MERGED));
        GpuKey { stack: Some(StackId(0)), capture: None, what, stream: 0, range: 0, ..key }
    }

    /// Adds a kernel to what the energy of its GPU is divided among.
    #[cold]
    fn add_energy(&mut self, key: GpuKey, start: u64, end: u64) {
        let Some(gpu) = self.devices.gpu(key.device).filter(|_| key.what.kernel().is_some()) else { return };
        self.meters.add(gpu, start, end, key);
    }

    /// Adds what a session reports about one of its devices.
    pub fn describe(&mut self, device: &Device) {
        if let Some(slot) = self.devices.describe(device) {
            self.recent_streams = [None; RECENT];
            // Work arrived before the description. That happens only in damaged recordings.
            let of_device = self.streams.iter_mut().filter(|(key, _)| (key.0, key.1) == (device.session, device.index));
            of_device.for_each(|(_, known)| *known = slot);
        }
    }

    /// Numbers the devices, in the profile and in all sums.
    pub fn number_devices(&mut self, profile: &mut Profile) {
        for ((session, _, context, stream), slot) in self.streams.drain() {
            self.devices.add_stream(slot, (session, context, stream));
        }
        let (of_keys, of_gpus) =
            std::mem::take(&mut self.meters).finish(|gpu| self.devices.gpus().any(|used| used == gpu));
        for (key, microjoules) in of_keys {
            self.weights.entry(key).or_default().microjoules = microjoules;
        }
        let used: Vec<Uuid> = self.devices.gpus().collect();
        let numbers = std::mem::take(&mut self.devices).number(profile, &mut self.evidence);
        let label = |gpu: Uuid| used.contains(&gpu).then(|| profile.gpu_label(gpu)).flatten();
        profile.gpu_counters = std::mem::take(&mut self.counters).finish(label);
        (profile.kernel_samples, profile.assigned) = std::mem::take(&mut self.counter_samples).finish();
        profile.energy = of_gpus.into_iter().map(|(gpu, energy)| profile.name_energy(gpu, energy)).collect();
        profile.energy.sort_by_key(|energy| (energy.label.parse::<u32>().ok(), energy.label.clone()));
        let number = |slot: u32| numbers.get(slot as usize).copied().unwrap_or(OTHER_DEVICE);
        for (((slot, kernel), shape), weight) in self.shapes.drain() {
            profile.shapes.entry((number(slot), kernel)).or_default().insert(shape, weight);
        }
        let measured = std::mem::take(&mut self.measured).finish();
        profile.limits =
            measured.into_iter().map(|(key, sum)| (LimitKey { device: number(key.device), ..key }, sum)).collect();
        let changed = numbers.iter().zip(0..).any(|(number, slot)| *number != slot);
        if changed {
            for sums in [&mut self.weights, &mut self.stands_for, &mut self.graphs] {
                let numbered =
                    |(key, weight): (GpuKey, GpuWeight)| (GpuKey { device: number(key.device), ..key }, weight);
                *sums = std::mem::take(sums).into_iter().map(numbered).collect();
            }
        }
    }
}

/// Returns where a stream is among the recent ones. A few streams of a few processes get different places.
#[inline]
fn place((session, _, _, stream): StreamKey) -> usize {
    session.0.wrapping_mul(5).wrapping_add(stream) as usize % RECENT
}

/// Counts a record that has no duration because its times are unknown.
#[inline]
pub fn count_times(start: u64, end: u64, ledger: &mut Ledger) {
    if start != 0 && end == 0 {
        ledger.unfinished += 1;
    } else if start == 0 || end < start {
        ledger.zero_time += 1;
    }
}

/// `CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE`
const PAGEABLE: u8 = 1;

/// Returns the direction of a copy between a GPU and host memory that is not pinned.
fn pageable(work: &Work) -> Option<Direction> {
    match *work {
        Work::Copy { direction: direction @ Direction::HtoD, source: PAGEABLE, .. }
        | Work::Copy { direction: direction @ Direction::DtoH, destination: PAGEABLE, .. } => Some(direction),
        _ => None,
    }
}

/// Returns the largest power of two not above the number; 0 for 0.
pub fn size_class(bytes: u64) -> u64 {
    bytes.checked_ilog2().map_or(0, |power| 1 << power)
}
