//! Charges the idle time of a device: see [`crate::idle`].
//!
//! Evidence arrives before the work that ends a gap, and gaps become final late, so samples and waits are kept for a
//! while. When there are too many, the older half is assigned to the gaps known so far, and dropped.

use rustc_hash::FxHashMap;

use super::{busy::Gap, divide::divide};
use crate::{
    event::{Launch, PointId, ProcessId, Sample, StackId, Wait},
    idle::{Cause, Charge, Idle, IdleWeight, Phase, SHORT_GAP_NS},
};

/// The maximum number of samples and waits that are kept: about 16 MB.
const MAX_KEPT: usize = 1 << 19;
/// The maximum number of distinct sums of a device. What has none stays unknown.
const MAX_SUMS: usize = 1 << 17;

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
    waits: FxHashMap<(StackId, PointId), u64>,
    /// The samples by stack: their number and their weight.
    samples: FxHashMap<StackId, (u64, u64)>,
}

/// What the idle time of one device is charged to, so far.
#[derive(Debug, Default)]
pub struct Blame {
    /// The gap before the first work. It is accounted for at the end, when the start of the recording is known.
    pub first: Option<Gap<Feed>>,
    pools: FxHashMap<(Phase, ThreadKey), Pool>,
    launching: FxHashMap<(Phase, ThreadKey, StackId), u64>,
    ns: [u64; Phase::ALL.len()],
    short_gaps: (u64, u64),
    sums: usize,
}

impl Blame {
    /// Adds the time of a gap that is final.
    pub fn account(&mut self, phase: Phase, gap: Gap<Feed>) {
        let Gap { start, end, mark } = gap;
        if end <= start {
            return;
        }
        let launched = mark.time.clamp(start, end);
        let ns = &mut self.ns[phase as usize];
        *ns = ns.saturating_add(end - start);
        if phase == Phase::Between && end - start < SHORT_GAP_NS {
            self.short_gaps = (self.short_gaps.0 + 1, self.short_gaps.1 + (end - start));
        }
        if launched < end {
            let sum = self.launching.entry((phase, mark.thread, mark.stack)).or_default();
            *sum = sum.saturating_add(end - launched);
        }
        if launched > start {
            let pool = self.pools.entry((phase, mark.thread)).or_default();
            pool.own_ns = pool.own_ns.saturating_add(launched - start);
        }
    }

    /// Assigns evidence, which must be sorted, to the thread's own time in a gap.
    pub fn assign(&mut self, phase: Phase, gap: Gap<Feed>, evidence: &Evidence) {
        let Gap { start, end, mark } = gap;
        let end = mark.time.min(end);
        let Some(track) = evidence.threads.get(&mark.thread) else { return };
        let pool = self.pools.entry((phase, mark.thread)).or_default();
        let first = track.samples.partition_point(|(time, ..)| *time < start);
        for (_, stack, weight) in track.samples[first..].iter().take_while(|(time, ..)| *time < end) {
            if admits(&pool.samples, stack, &mut self.sums) {
                let sum = pool.samples.entry(*stack).or_default();
                *sum = (sum.0 + 1, sum.1.saturating_add(*weight));
            }
        }
        let first = track.waits.partition_point(|(until, ..)| *until <= start);
        for (until, from, stack, reason) in track.waits[first..].iter().take_while(|(_, from, ..)| *from < end) {
            let ns = (*until).min(end).saturating_sub((*from).max(start));
            if ns > 0 && admits(&pool.waits, &(*stack, *reason), &mut self.sums) {
                let sum = pool.waits.entry((*stack, *reason)).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
    }

    /// Ends it: divides the time of each pool.
    pub fn finish(self, waits_recorded: bool) -> Idle {
        let mut parts: Vec<(Charge, IdleWeight)> = Vec::new();
        for ((phase, (process, tid), stack), ns) in self.launching {
            let charge = Charge { phase, process, tid, cause: Cause::Launching, stack: Some(stack) };
            parts.push((charge, IdleWeight { ns, samples: 0 }));
        }
        for ((phase, (process, tid)), pool) in self.pools {
            let charge = |cause, stack| Charge { phase, process, tid, cause, stack };
            // The waits of a thread are recorded from its first launch on.
            let complete = waits_recorded && phase != Phase::Before;
            pool.divide(complete, |cause, stack, weight| parts.push((charge(cause, stack), weight)));
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
    /// Divides its time: first to waits, which are exact, then to samples. If all waits are known, the thread ran for the
    /// rest of the time.
    fn divide(self, all_waits: bool, mut on: impl FnMut(Cause, Option<StackId>, IdleWeight)) {
        let mut waits: Vec<_> = self.waits.into_iter().collect();
        waits.sort_unstable();
        let mut samples: Vec<_> = self.samples.into_iter().collect();
        samples.sort_unstable();
        let waited = waits.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns)).min(self.own_ns);
        // Work that arrived late may have filled a part of a gap after waits were assigned to it.
        let ns = divide(waited, &waits.iter().map(|(_, ns)| *ns).collect::<Vec<_>>());
        for (((stack, reason), _), ns) in waits.into_iter().zip(ns) {
            on(Cause::Waiting(reason), Some(stack), IdleWeight { ns, samples: 0 });
        }
        let rest = self.own_ns - waited;
        let sampled = samples.iter().fold(0_u64, |sum, (_, (_, weight))| sum.saturating_add(*weight));
        let running = if all_waits && sampled > 0 { rest } else { rest.min(sampled) };
        let ns = divide(running, &samples.iter().map(|(_, (_, weight))| *weight).collect::<Vec<_>>());
        for ((stack, (count, _)), ns) in samples.into_iter().zip(ns) {
            on(Cause::Running, Some(stack), IdleWeight { ns, samples: count });
        }
        on(Cause::Unknown, None, IdleWeight { ns: rest - running, samples: 0 });
    }
}

#[cfg(test)]
mod tests;
