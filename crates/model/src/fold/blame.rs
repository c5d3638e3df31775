//! Charges the idle time of a device: see [`crate::idle`].
//!
//! Evidence arrives before the work that ends a gap, and gaps become final late, so samples and waits are kept for a
//! while. When there are too many, the older half is assigned to the gaps known so far, and dropped.
//!
//! A gap becomes final when 65,536 later intervals have arrived, or at the end. At most 524,288 samples and waits are
//! kept.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    busy::{BusyTime, Gap, TimeRange},
    divide::divide,
};
use crate::{
    budget::Budget,
    event::{Launch, PointId, ProcessId, Sample, StackId, Wait},
    idle::{Cause, Charge, Idle, IdleWeight, Phase, SHORT_GAP_NS},
};

/// The maximum number of samples and waits that are kept: about 16 MB.
const MAX_KEPT: usize = 1 << 19;
/// The maximum number of distinct sums of a device. What has none stays unknown.
const MAX_SUMS: usize = 1 << 17;

/// The most threads of a process, and of all, whose first launch is known: a process may say that any thread launches.
const MAX_LAUNCHING: (u64, u64) = (1 << 14, 1 << 16);

/// In gaps of at least this length, other threads are looked at. Shorter ones have too few samples, and are too many.
const LONG_GAP_NS: u64 = 10_000_000;

/// A thread: its image and its id. All zero if it is not known.
pub type ThreadKey = (ProcessId, u32);

/// The launch of the work that a busy interval begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Feed {
    thread: ThreadKey,
    /// When the launch began; `u64::MAX` if it was not seen.
    time: u64,
    stack: StackId,
}

impl Feed {
    /// The launch of an activity, if it is known.
    #[inline]
    pub fn of(launch: Option<&Launch>) -> Self {
        let unknown = Self { thread: (ProcessId(0), 0), time: u64::MAX, stack: StackId(0) };
        launch.map_or(unknown, |l| Self { thread: (l.process, l.tid), time: l.time, stack: l.stack })
    }

    /// The same thread, without a launch: after the last work.
    pub fn without_launch(self) -> Self {
        Self { time: u64::MAX, ..self }
    }
}

/// What threads did: samples and waits.
#[derive(Default)]
pub struct Evidence {
    threads: FxHashMap<ThreadKey, Track>,
    /// The number of samples and waits.
    kept: usize,
    unsorted: bool,
    /// Waits are recorded: a thread that does not wait runs.
    pub waits_recorded: bool,
    launched: FirstLaunches,
    /// The thread of the last launch.
    last: ThreadKey,
    /// Launches of the first run of a kernel on a device.
    first_uses: FxHashSet<(ThreadKey, u64)>,
}

/// The first launch of each thread: from then on its waits are recorded.
struct FirstLaunches {
    times: FxHashMap<ThreadKey, u64>,
    room: Budget,
}

impl Default for FirstLaunches {
    fn default() -> Self {
        Self { times: FxHashMap::default(), room: Budget::new(MAX_LAUNCHING.0, MAX_LAUNCHING.1) }
    }
}

/// What one thread did.
#[derive(Default)]
struct Track {
    /// Time, stack and weight.
    samples: Vec<(u64, StackId, u64)>,
    /// End, start, stack and reason. They do not overlap.
    waits: Vec<(u64, u64, StackId, PointId)>,
    unsorted: bool,
}

impl Evidence {
    /// Adds a sample.
    #[inline]
    pub fn sample(&mut self, sample: &Sample) {
        let track = self.threads.entry((sample.process, sample.tid)).or_default();
        track.unsorted |= track.samples.last().is_some_and(|last| last.0 > sample.time);
        self.unsorted |= track.unsorted;
        track.samples.push((sample.time, sample.stack, sample.weight));
        self.kept += 1;
    }

    /// Adds a wait.
    pub fn wait(&mut self, wait: &Wait) {
        let track = self.threads.entry((wait.process, wait.tid)).or_default();
        track.unsorted |= track.waits.last().is_some_and(|last| last.0 > wait.end);
        self.unsorted |= track.unsorted;
        track.waits.push((wait.end, wait.start, wait.stack, wait.reason));
        self.kept += 1;
        self.waits_recorded = true;
    }

    /// Notes a launch.
    #[inline]
    pub fn launch(&mut self, launch: &Launch) {
        let thread = (launch.process, launch.tid);
        if thread != self.last {
            self.last = thread;
            let FirstLaunches { times, room } = &mut self.launched;
            if !times.contains_key(&thread) && room.take(launch.process, 1) {
                times.insert(thread, launch.time);
            }
        }
    }

    /// Notes the launch of the first run of a kernel on a device.
    pub fn first_use(&mut self, launch: &Launch) {
        self.first_uses.insert(((launch.process, launch.tid), launch.time));
    }

    /// Returns how much of a time is before the waits of a thread are recorded.
    fn unwatched(&self, thread: ThreadKey, start: u64, end: u64) -> u64 {
        self.launched.times.get(&thread).map_or(end, |first| (*first).min(end)).saturating_sub(start)
    }

    /// Whether there is too much of it.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.kept >= MAX_KEPT
    }

    /// Makes it searchable.
    pub fn sort(&mut self) {
        if !std::mem::take(&mut self.unsorted) {
            return;
        }
        for track in self.threads.values_mut().filter(|track| track.unsorted) {
            track.samples.sort_by_key(|(time, ..)| *time);
            track.waits.sort_by_key(|(end, ..)| *end);
            track.unsorted = false;
        }
    }

    /// Returns the older half of what each thread did, which must be sorted, and keeps the rest.
    pub fn take_older_half(&mut self) -> Self {
        let mut older = Self { waits_recorded: self.waits_recorded, ..Self::default() };
        for (thread, track) in &mut self.threads {
            let (samples, waits) = (track.samples.len().div_ceil(2), track.waits.len().div_ceil(2));
            let track = Track {
                samples: track.samples.drain(..samples).collect(),
                waits: track.waits.drain(..waits).collect(),
                unsorted: false,
            };
            older.threads.insert(*thread, track);
            older.kept += samples + waits;
        }
        self.threads.retain(|_, track| !track.samples.is_empty() || !track.waits.is_empty());
        self.kept -= older.kept;
        older
    }
}

/// The gaps of one device that one thread ended, in one phase.
#[derive(Debug, Default)]
struct Pool {
    /// The thread's own time in them.
    own_ns: u64,
    /// Of that, the time before its waits were recorded.
    unwatched_ns: u64,
    waits: FxHashMap<(StackId, PointId), u64>,
    /// The samples by stack: their number and their weight.
    samples: FxHashMap<StackId, (u64, u64)>,
    /// The samples of other threads of its process, in long gaps that its own evidence leaves open.
    others: FxHashMap<(u32, StackId), (u64, u64)>,
}

/// Gaps, from the launch of the work that ended them on.
#[derive(Debug, Default)]
struct Launches {
    ns: u64,
    gaps: u64,
    /// The longest, and the time of its launch.
    longest: (u64, u64),
}

/// What the idle time of one device is charged to, so far.
#[derive(Debug, Default)]
pub struct Blame {
    /// What is charged is in this time.
    pub range: TimeRange,
    /// The gap before the first work. It is accounted for at the end, when the start of the recording is known.
    pub first: Option<Gap<Feed>>,
    pools: FxHashMap<(Phase, ThreadKey), Pool>,
    launching: FxHashMap<(Phase, ThreadKey, StackId), Launches>,
    ns: [u64; Phase::ALL.len()],
    short_gaps: (u64, u64),
    sums: usize,
}

impl Blame {
    /// Charges only the time in a range.
    pub fn within(range: TimeRange) -> Self {
        Self { range, ..Self::default() }
    }

    /// Whether a part of a gap is charged.
    pub fn overlaps(&self, gap: &Gap<Feed>) -> bool {
        gap.start < self.range.to && gap.end > self.range.from
    }

    /// Charges a gap before some work, which is final.
    pub fn close(&mut self, gap: Gap<Feed>, kernels: &BusyTime<Feed>, evidence: &Evidence) {
        let (gap, between) = claimed(gap, kernels);
        if gap.start == 0 {
            self.assign(Phase::Before, gap, evidence);
            self.first = Some(gap);
            return;
        }
        let (start, end) = self.range.cut(gap.start, gap.end);
        if between < SHORT_GAP_NS && start < end {
            self.short_gaps = (self.short_gaps.0 + 1, self.short_gaps.1 + (end - start));
        }
        self.account(Phase::Between, gap, evidence);
        self.assign(Phase::Between, gap, evidence);
    }

    /// Assigns evidence to a gap before some work, which may still change.
    pub fn assign_open(&mut self, gap: Gap<Feed>, kernels: &BusyTime<Feed>, evidence: &Evidence) {
        let phase = if gap.start == 0 { Phase::Before } else { Phase::Between };
        self.assign(phase, claimed(gap, kernels).0, evidence);
    }

    /// Adds the time of a gap that is final.
    pub fn account(&mut self, phase: Phase, gap: Gap<Feed>, evidence: &Evidence) {
        let Gap { mark, .. } = gap;
        let (start, end) = self.range.cut(gap.start, gap.end);
        if end <= start {
            return;
        }
        let launched = mark.time.clamp(start, end);
        let ns = &mut self.ns[phase as usize];
        *ns = ns.saturating_add(end - start);
        if launched < end {
            let sum = self.launching.entry((phase, mark.thread, mark.stack)).or_default();
            sum.ns = sum.ns.saturating_add(end - launched);
            sum.gaps += 1;
            sum.longest = sum.longest.max((end - launched, mark.time));
        }
        if launched > start {
            let pool = self.pools.entry((phase, mark.thread)).or_default();
            pool.own_ns = pool.own_ns.saturating_add(launched - start);
            pool.unwatched_ns = pool.unwatched_ns.saturating_add(evidence.unwatched(mark.thread, start, launched));
        }
    }

    /// Assigns evidence, which must be sorted, to the thread's own time in a gap.
    pub fn assign(&mut self, phase: Phase, gap: Gap<Feed>, evidence: &Evidence) {
        let Gap { mark, .. } = gap;
        let (start, end) = self.range.cut(gap.start, mark.time.min(gap.end));
        let none = Track::default();
        let track = evidence.threads.get(&mark.thread).unwrap_or(&none);
        let pool = self.pools.entry((phase, mark.thread)).or_default();
        let first = track.samples.partition_point(|(time, ..)| *time < start);
        let mut covered = 0_u64;
        for (_, stack, weight) in track.samples[first..].iter().take_while(|(time, ..)| *time < end) {
            covered = covered.saturating_add(*weight);
            if admits(&pool.samples, stack, &mut self.sums) {
                let sum = pool.samples.entry(*stack).or_default();
                *sum = (sum.0 + 1, sum.1.saturating_add(*weight));
            }
        }
        let first = track.waits.partition_point(|(until, ..)| *until <= start);
        for (until, from, stack, reason) in track.waits[first..].iter().take_while(|(_, from, ..)| *from < end) {
            let ns = (*until).min(end).saturating_sub((*from).max(start));
            covered = covered.saturating_add(ns);
            if ns > 0 && admits(&pool.waits, &(*stack, *reason), &mut self.sums) {
                let sum = pool.waits.entry((*stack, *reason)).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
        let length = end.saturating_sub(start);
        if phase != Phase::Before && length >= LONG_GAP_NS && covered < length / 2 {
            self.assign_others(phase, Gap { start, end, mark }, evidence);
        }
    }

    /// Assigns the samples of the other threads of a process.
    fn assign_others(&mut self, phase: Phase, Gap { start, end, mark }: Gap<Feed>, evidence: &Evidence) {
        let pool = self.pools.entry((phase, mark.thread)).or_default();
        let is_other = |thread: &ThreadKey| thread.0 == mark.thread.0 && *thread != mark.thread;
        for ((_, tid), track) in evidence.threads.iter().filter(|(thread, _)| is_other(thread)) {
            let first = track.samples.partition_point(|(time, ..)| *time < start);
            for (_, stack, weight) in track.samples[first..].iter().take_while(|(time, ..)| *time < end) {
                if admits(&pool.others, &(*tid, *stack), &mut self.sums) {
                    let sum = pool.others.entry((*tid, *stack)).or_default();
                    *sum = (sum.0 + 1, sum.1.saturating_add(*weight));
                }
            }
        }
    }

    /// Ends it: divides the time of each pool.
    pub fn finish(self, evidence: &Evidence) -> Idle {
        let mut parts: Vec<(Charge, IdleWeight)> = Vec::new();
        for ((phase, thread, stack), Launches { ns, gaps, longest: (longest_ns, launched) }) in self.launching {
            let (process, tid) = thread;
            let charge = Charge { phase, process, tid, cause: Cause::Launching, stack: Some(stack) };
            let first_use = evidence.first_uses.contains(&(thread, launched));
            parts.push((charge, IdleWeight { ns, gaps, longest_ns, first_use, ..IdleWeight::default() }));
        }
        for ((phase, (process, tid)), pool) in self.pools {
            let charge =
                |cause, other: Option<u32>, stack| Charge { phase, process, tid: other.unwrap_or(tid), cause, stack };
            pool.divide(evidence.waits_recorded, |cause, other, stack, weight| {
                parts.push((charge(cause, other, stack), weight));
            });
        }
        parts.retain(|(_, weight)| weight.ns > 0);
        parts.sort_unstable_by_key(|(charge, _)| *charge);
        let idle = Idle { ns: self.ns, short_gaps: self.short_gaps, parts };
        debug_assert!(
            Phase::ALL.iter().all(|phase| idle.parts_of(*phase).map(|(_, w)| w.ns).sum::<u64>() == idle.of(*phase)),
            "what is charged adds up to the idle time"
        );
        idle
    }
}

/// Returns a gap with the launch that it is charged to, and the length of the gap between kernels that it is a part of.
fn claimed(gap: Gap<Feed>, kernels: &BusyTime<Feed>) -> (Gap<Feed>, u64) {
    let Some(next) = kernels.gap_before(gap.end) else { return (gap, gap.end - gap.start) };
    let between = if next.start == 0 { gap.end - gap.start } else { next.end - next.start };
    let missing = next.mark.time > gap.start && next.mark.time != u64::MAX;
    let mark = if missing && next.mark.thread != gap.mark.thread { next.mark } else { gap.mark };
    (Gap { mark, ..gap }, between)
}

/// Whether a sum exists, or there is room for another one.
fn admits<K: Eq + std::hash::Hash, V>(sums: &FxHashMap<K, V>, key: &K, count: &mut usize) -> bool {
    if sums.contains_key(key) {
        return true;
    }
    let room = *count < MAX_SUMS;
    *count += usize::from(room);
    room
}

impl Pool {
    /// Divides its time: first to waits, which are exact, then to samples. Where all waits are known, the thread ran for the
    /// rest of the time. `on` gets the cause, the thread if it is another one, the stack and the time.
    fn divide(self, waits_recorded: bool, mut on: impl FnMut(Cause, Option<u32>, Option<StackId>, IdleWeight)) {
        let mut waits: Vec<_> = self.waits.into_iter().collect();
        waits.sort_unstable();
        let mut samples: Vec<_> = self.samples.into_iter().collect();
        samples.sort_unstable();
        let mut others: Vec<_> = self.others.into_iter().collect();
        others.sort_unstable();
        let waited = waits.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns)).min(self.own_ns);
        // Work that arrived late may have filled a part of a gap after waits were assigned to it.
        let ns = divide(waited, &waits.iter().map(|(_, ns)| *ns).collect::<Vec<_>>());
        for (((stack, reason), _), ns) in waits.into_iter().zip(ns) {
            on(Cause::Waiting(reason), None, Some(stack), IdleWeight { ns, ..IdleWeight::default() });
        }
        let rest = self.own_ns - waited;
        let watched = if waits_recorded { rest.saturating_sub(self.unwatched_ns) } else { 0 };
        let sampled = samples.iter().fold(0_u64, |sum, (_, (_, weight))| sum.saturating_add(*weight));
        let running = if sampled > 0 { rest.min(sampled).max(watched) } else { 0 };
        let ns = divide(running, &samples.iter().map(|(_, (_, weight))| *weight).collect::<Vec<_>>());
        for ((stack, (samples, _)), ns) in samples.into_iter().zip(ns) {
            on(Cause::Running, None, Some(stack), IdleWeight { ns, samples, ..IdleWeight::default() });
        }
        let rest = rest - running;
        let meanwhile = others.iter().fold(0_u64, |sum, (_, (_, weight))| sum.saturating_add(*weight)).min(rest);
        let ns = divide(meanwhile, &others.iter().map(|(_, (_, weight))| *weight).collect::<Vec<_>>());
        for (((tid, stack), (samples, _)), ns) in others.into_iter().zip(ns) {
            on(Cause::Meanwhile, Some(tid), Some(stack), IdleWeight { ns, samples, ..IdleWeight::default() });
        }
        on(Cause::Unknown, None, None, IdleWeight { ns: rest - meanwhile, ..IdleWeight::default() });
    }
}

#[cfg(test)]
mod tests;
