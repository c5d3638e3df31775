//! Folds events into a profile, one event at a time.
//!
//! `record` folds while it records; `report` and `export` fold a recording. The same events in the same order give the
//! same [`Profile`]. Memory grows with the number of distinct stacks, names and streams, not with the number of events:
//! activities are summed as soon as their launch is certain ([`Causes`]), and then dropped.
//!
//! ```text
//!   Launch ----> join ---- (launch, activity) --> GPU time by (image, stack, capture, what, device, stream, NVTX range)
//!   Activity ->  join ---- (none, activity) ----> the same, without a stack: the total stays right
//!           \        `---- (launch, none) ------> pending by (image, stack, kind)
//!            `-> busy time of the device
//!   Sample ----> CPU time by (image, stack)
//!   Node... ---> the stacks that created the nodes of graphs: their activities are summed under these too
//! ```

mod blame;
mod busy;
mod communication;
mod copy_calls;
mod counter_samples;
mod describe;
mod devices;
mod divide;
mod energy;
mod gpu;
mod measured;
mod ranks;
mod spread;
mod stalled;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::busy::{BusyTime, TimeRange};
pub use self::divide::divide;
pub use self::gpu::{NAME_LOST, size_class};
use self::{
    copy_calls::CopyCalls,
    gpu::{GpuTime, count_times},
    spread::{Counted, Known, estimate, spread},
};
pub use crate::causes::Joined;
use crate::{
    calls::Calls,
    causes::{Cause, Causes},
    clocks::Clocks,
    energy::EnergyLedger,
    event::{
        DumpReason, Event, LaunchKind, LossCause, Mode, PointId, ProcessId, SHORT_WAITS, SessionId, StackId, Sync,
        Totals,
    },
    join::Limits,
    ledger::Ledger,
    memory::Allocations,
    profile::{ProcessInfo, Profile, SessionInfo},
    stacks::Stacks,
};

/// The most streams whose waits are summed.
const MOST_STREAMS: usize = 4096;

/// Turns events into a profile.
#[derive(Default)]
pub struct Fold {
    causes: Causes,
    gpu: GpuTime,
    /// Everything except what the join and the sessions count.
    profile: Profile,
    totals: BTreeMap<SessionId, Totals>,
    /// Launches that were only counted, by session, kind and index of the kernel's name.
    counted: BTreeMap<(SessionId, LaunchKind, u32), u64>,
    /// Recorded launches of graphs, by process.
    graph_launches: FxHashMap<ProcessId, u64>,
    /// The current image of each pid. Recordings that are read as one may come from different machines, with the same pids.
    images: FxHashMap<(usize, u32), ProcessId>,
    noted: FxHashSet<String>,
    memory: Allocations,
    copy_calls: CopyCalls,
}

impl Fold {
    /// Creates an empty fold.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty fold whose join uses `limits`.
    pub fn with_limits(limits: Limits) -> Self {
        Self { causes: Causes::with_limits(limits), ..Self::default() }
    }

    /// Creates an empty fold that counts the busy and idle time of GPUs in a part of the time. It needs all events: the work
    /// before and after a range explains the gaps at its ends.
    pub fn within(range: TimeRange) -> Self {
        Self { gpu: GpuTime::within(range), ..Self::default() }
    }

    /// Creates an empty fold that also charges the idle time of GPUs in each of some parts of the time.
    pub fn with_parts(parts: Vec<TimeRange>) -> Self {
        Self { gpu: GpuTime::with_parts(parts), ..Self::default() }
    }

    /// Keeps what communicators did of a whole recording: more than while recording, when any program may call them.
    pub fn keep_communication(&mut self) {
        self.gpu.communication.keep_all();
    }

    /// Sets the clocks of the hosts whose recordings are read as one.
    pub fn set_clocks(&mut self, clocks: Clocks) {
        self.gpu.communication.set_clocks(clocks);
    }

    /// Returns the stacks that have arrived.
    pub fn stacks(&self) -> &Stacks {
        &self.profile.stacks
    }

    /// Returns the traced calls so far.
    pub fn calls(&self) -> &Calls {
        &self.profile.calls
    }

    /// Adds the next event.
    #[inline]
    pub fn push(&mut self, event: &Event) {
        self.push_with(event, |_| {});
    }

    /// Adds the next event, and reports every activity that it settles: none, one, or several that were waiting.
    pub fn push_with(&mut self, event: &Event, mut on_joined: impl FnMut(Joined<'_>)) {
        let Self { causes, gpu, profile, copy_calls, .. } = self;
        match event {
            Event::Launch(launch) => {
                profile.note_time(launch.time);
                if launch.kind == LaunchKind::Graph {
                    *self.graph_launches.entry(launch.process).or_default() += 1;
                }
                gpu.ranks.launch(launch.session);
                gpu.evidence.launch(launch);
                profile.sampled.without_stack += u64::from(launch.stack == StackId::NOT_SAMPLED);
                copy_calls.launch(launch);
                causes.launch(launch, |cause| settle(cause, gpu, copy_calls, profile, &mut on_joined));
            }
            Event::Activity(activity) => {
                profile.note_time(activity.start.max(activity.end));
                gpu.receive(activity, &mut profile.ledger);
                causes.activity(activity, |cause| settle(cause, gpu, copy_calls, profile, &mut on_joined));
            }
            Event::Sample(sample) => {
                profile.note_time(sample.time);
                profile.ledger.samples += 1;
                gpu.sample(sample);
                let weight = profile.cpu.entry((sample.process, sample.stack)).or_default();
                weight.count += 1;
                weight.ns = weight.ns.saturating_add(sample.weight);
            }
            Event::Returned(returned) => copy_calls.returned(returned, profile),
            Event::Sync(sync) => self.wait(sync),
            Event::Wait(wait) => {
                profile.note_time(wait.end);
                gpu.wait(wait);
                let sum = profile.waited.entry((wait.process, wait.stack)).or_default();
                sum.count += 1;
                add(&mut sum.ns, wait.end.saturating_sub(wait.start));
            }
            Event::Call(call) => {
                profile.note_time(call.start.max(call.end));
                if profile.is_recording() {
                    self.memory.call(call);
                } else if profile.start.as_ref().is_some_and(|start| start.mode == Mode::TraceSums) {
                    profile.calls.learn_names(call);
                } else {
                    profile.calls.call(call);
                }
            }
            Event::Switch(switch) => {
                profile.note_time(switch.end);
                profile.calls.switch(switch);
            }
            other => self.describe(other),
        }
    }

    /// Returns the ledger as of now. Launches in flight count as pending and waiting activities as unmatched, so that
    /// its equations always hold. Missing stacks are only known at the end.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = self.profile.ledger.clone();
        let join = self.causes.counts();
        let (in_flight, waiting) = self.causes.undecided();
        ledger.launches = join.launches;
        ledger.launches_matched = join.launches_matched;
        ledger.launches_failed = join.launches_failed;
        ledger.launches_captured = join.launches_captured;
        ledger.launches_empty = join.launches_empty;
        ledger.launches_pending = join.launches_pending + in_flight;
        // A running process keeps launching while its last records are in transit.
        ledger.launches -= self.gpu.launched_after_end;
        ledger.launches_pending -= self.gpu.launched_after_end;
        ledger.activities_matched = join.activities_matched;
        ledger.activities_unmatched = join.activities_unmatched + waiting;
        ledger.lost.join_evicted = join.launches_evicted;
        for totals in self.totals.values() {
            let delivered = totals.kernels.saturating_add(totals.copies).saturating_add(totals.memsets);
            add(&mut ledger.activities_delivered, delivered);
            add(&mut ledger.kernel_ns_delivered, totals.kernel_ns);
            add(&mut ledger.lost.cupti_dropped, totals.dropped_by_cupti);
            add(&mut ledger.lost.queue_full, totals.dropped_queue_full);
            add(&mut ledger.lost.invalid_records, totals.invalid);
            add(&mut ledger.lost.names, totals.nameless);
            add(&mut ledger.lost.buffers_refused, totals.buffers_refused);
            add(&mut ledger.lost.queue_full_launches, totals.dropped_launches);
        }
        let ended = |session: &SessionId| self.totals.get(session).is_some_and(|t| t.ended);
        let runs =
            |info: &SessionInfo| self.profile.processes.get(&info.process).is_some_and(|process| process.end == 0);
        for (_, info) in self.profile.sessions.iter().filter(|(session, _)| !ended(session)) {
            match runs(info) {
                // The flight recorder does not end the sessions that it writes.
                true if self.profile.dump.is_some() => {}
                true => ledger.sessions_left += 1,
                false => ledger.sessions_cut_off += 1,
            }
        }
        for cause in LossCause::ALL {
            ledger.lost.causes.entry(cause).or_default();
        }
        add(ledger.lost.causes.entry(LossCause::GpuSums).or_default(), self.gpu.merged);
        add(ledger.lost.causes.entry(LossCause::GraphNodes).or_default(), self.causes.nodes().dropped());
        ledger.graph_nodes_unknown = self.causes.nodes().unknown();
        ledger
    }

    /// Ends the fold.
    pub fn finish(self) -> Profile {
        self.finish_with(|_| {})
    }

    /// Ends the fold, and reports the activities whose launch never arrived.
    pub fn finish_with(mut self, mut on_joined: impl FnMut(Joined<'_>)) -> Profile {
        let Self { causes, gpu, profile, copy_calls, .. } = &mut self;
        causes.finish(|cause| settle(cause, gpu, copy_calls, profile, &mut on_joined));
        gpu.number_devices(profile);
        profile.communication = std::mem::take(&mut gpu.communication).finish();
        profile.ranks = std::mem::take(&mut gpu.ranks).finish(&profile.communication);
        let of_session = |session| profile.sessions.get(&session).map(|info| info.process);
        let all = profile.ranks.all.iter().flat_map(|(rank, info)| info.sessions.iter().map(|id| (*id, *rank)));
        profile.ranks.of_process = all.filter_map(|(id, rank)| Some((of_session(id)?, rank))).collect();
        let mut ledger = self.ledger();
        let mut profile = self.profile;
        let recorded = profile.end.map_or(profile.last_time, |end| end.time);
        let ended = |process| profile.processes.get(&process).map_or(0, |info: &ProcessInfo| info.end);
        profile.memory = self.memory.memory(|process| match ended(process) {
            0 => Some(recorded),
            end => Some(end),
        });
        profile.calls.finish();
        profile.gpu = self.gpu.weights;
        profile.pageable = self.gpu.pageable;
        spread(&mut profile.gpu, &self.gpu.stands_for);
        spread(&mut self.gpu.graphs, &self.gpu.stands_for);
        let mut counted = Counted::new();
        for ((session, kind, name), count) in self.counted {
            let process = profile.sessions.get(&session).map_or(ProcessId(0), |session| session.process);
            add(counted.entry((process, kind, name)).or_default(), count);
        }
        let known = Known { graphs: &self.gpu.graphs, graph_launches: &self.graph_launches };
        profile.sampled.estimated = estimate(&mut profile.gpu, &known, &counted);
        if profile.is_trace() {
            // A trace has no stacks of nodes.
            profile.show_graphs_by_launch();
            (ledger.graph_operations, ledger.graph_operations_unknown, ledger.graph_nodes_unknown) = (0, 0, 0);
        }
        let sampled: FxHashSet<_> = profile.stalls.samples.keys().map(|(at, _)| (at.session, at.function)).collect();
        let indexed = sampled.into_iter().map(|function| (function, self.gpu.names.index(function.0, function.1)));
        profile.stalls.functions = indexed.collect();
        profile.kernel_names = self.gpu.names.into_texts();
        ledger.keeps_running = profile.dump.as_ref().is_some_and(|dump| dump.reason != DumpReason::End);
        ledger.stacks_missing = stacks_missing(&profile);
        ledger.pauses = profile.ledger_pauses(recorded);
        ledger.hits = profile.counters.count();
        count_stack_ends(&profile, &mut ledger);
        ledger.stalls = profile.stall_ledger();
        ledger.energy = EnergyLedger::of(&profile.energy);
        profile.ledger = ledger;
        profile
    }

    fn wait(&mut self, sync: &Sync) {
        let profile = &mut self.profile;
        profile.note_time(sync.start.max(sync.end));
        profile.ledger.syncs += 1;
        count_times(sync.start, sync.end, &mut profile.ledger);
        profile.waits.count += 1;
        let ns = if sync.start == 0 { 0 } else { sync.end.saturating_sub(sync.start) };
        add(&mut profile.waits.ns, ns);
        let stream = (sync.session, sync.stream);
        let known = profile.stream_waits.len() < MOST_STREAMS || profile.stream_waits.contains_key(&stream);
        if sync.stream != u32::MAX && known {
            let sum = profile.stream_waits.entry(stream).or_default();
            sum.count += 1;
            add(&mut sum.ns, ns);
        }
    }
}

impl Profile {
    #[inline]
    fn note_time(&mut self, time: u64) {
        self.last_time = self.last_time.max(time);
    }
}

/// Sums saturate: a recording may contain any numbers.
#[inline]
fn add(sum: &mut u64, amount: u64) {
    *sum = sum.saturating_add(amount);
}

#[inline]
fn settle(
    cause: Cause<'_>,
    gpu: &mut GpuTime,
    copy_calls: &mut CopyCalls,
    profile: &mut Profile,
    on_joined: &mut impl FnMut(Joined<'_>),
) {
    match cause {
        Cause::Ran(joined) => {
            let Joined { launch, activity, capture } = joined;
            if activity.graph_node != 0 {
                profile.ledger.graph_operations += 1;
                profile.ledger.graph_operations_unknown += u64::from(capture.is_none());
            }
            let session = || profile.sessions.get(&activity.session).map_or(ProcessId(0), |session| session.process);
            let process = launch.map_or_else(session, |launch| launch.process);
            let range = gpu.ranged.of(activity);
            profile.ranges.activity(range, activity);
            if let Some(launch) = launch.filter(|_| !profile.stalls.totals.is_empty()) {
                gpu.stalled.ran(launch, &mut profile.stalls);
            }
            if let Some(launch) = launch {
                copy_calls.ran(launch, activity.end, profile);
            }
            gpu.settle(&joined, process, range);
            on_joined(joined);
        }
        Cause::Pending(launch) if profile.end.is_some_and(|end| launch.time >= end.time) => {
            gpu.launched_after_end += 1;
            *profile.launched_after_end.entry((launch.process, launch.tid, launch.stack)).or_default() += 1;
        }
        Cause::Pending(launch) => {
            let key: (ProcessId, StackId, LaunchKind) = (launch.process, launch.stack, launch.kind);
            *profile.pending.entry(key).or_default() += 1;
        }
    }
}

/// Counts the distinct stacks that the profile refers to but does not contain.
fn stacks_missing(profile: &Profile) -> u64 {
    let traced = profile.is_trace();
    let gpu = profile.gpu.keys().flat_map(|key| key.stack.into_iter().chain(key.capture));
    let cpu = profile.cpu.keys().map(|(_, stack)| *stack);
    let pending = profile.pending.keys().map(|(_, stack, _)| *stack);
    let counters = &profile.counters;
    let has_stack = |point: &PointId| counters.points.get(point).is_none_or(|point| point.function != SHORT_WAITS);
    let counted = counters.hits.keys().filter(|(point, ..)| has_stack(point)).map(|(_, _, stack)| *stack);
    let missing: FxHashSet<StackId> = gpu
        .chain(cpu)
        .chain(pending)
        .chain(counted)
        .chain(profile.memory.stacks())
        .filter(|id| (id.0 != 0 || !traced) && !id.is_placeholder())
        .filter(|id| !profile.stacks.contains(*id))
        .collect();
    missing.len() as u64
}

/// Counts how the walks ended, weighted by the events of each stack.
fn count_stack_ends(profile: &Profile, ledger: &mut Ledger) {
    let end = |id: StackId| profile.stacks.get(id).map(|stack| stack.end);
    for (key, weight) in &profile.gpu {
        if let Some(end) = key.capture.or(key.stack).and_then(end) {
            add(ledger.gpu_stack_ends.entry(end).or_default(), weight.count);
        }
    }
    for ((_, stack), weight) in &profile.cpu {
        if let Some(end) = end(*stack) {
            add(ledger.cpu_stack_ends.entry(end).or_default(), weight.count);
        }
    }
    for ((_, _, stack), weight) in &profile.counters.hits {
        if let Some(end) = end(*stack) {
            add(ledger.hit_stack_ends.entry(end).or_default(), weight.count);
        }
    }
}
