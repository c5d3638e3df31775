//! Why a rank was late: what its GPU and its thread did since the last operation of the communicator.
//!
//! ```text
//!   rank 0   [==]        ####[####====]     # computes, and then waits for rank 1
//!   rank 1   [==]            ####[====]     computes as long, but begins later: its GPU is idle while its thread ...
//!   thread       ~~~~~~~~~~~~               ... does something else: host. A GPU that computes longer is late itself.
//! ```
//!
//! The launch says less: a thread launches ahead, so it has often launched the operation before the others have begun.

use std::{collections::BTreeMap, io};

use model::{
    communication::Reasons,
    event::{Event, PointId, ProcessId, SessionId, StackId},
    profile::Profile,
};
use rustc_hash::FxHashMap;

use super::delays::{self, Delay};
use crate::Events;

/// The most processes that delayed others and are looked into, those with the longest delays.
const MOST_PROCESSES: usize = 64;
/// The most samples, waits and GPU operations of them that are kept: 100 MB.
const MOST_KEPT: usize = 4 << 20;

/// What a process did in the times in which it became late.
#[derive(Default)]
struct Late {
    delays: Vec<Delay>,
    /// Times since the last operations, by time: disjoint, and in them what its GPU did.
    windows: Vec<(u64, u64)>,
    busy: Vec<(u64, u64)>,
    samples: Vec<(u64, u64, StackId)>,
    waits: Vec<(u64, u64, StackId, PointId)>,
}

/// Finds out what the processes that delayed others did instead.
pub fn find<'a>(
    profile: &Profile,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
) -> io::Result<BTreeMap<SessionId, Reasons>> {
    let mut all = late(profile);
    let threads: FxHashMap<(ProcessId, u32), SessionId> = all
        .iter()
        .flat_map(|(session, late)| late.delays.iter().map(|delay| (*session, delay.tid)))
        .filter_map(|(session, tid)| Some(((profile.sessions.get(&session)?.process, tid), session)))
        .collect();
    let mut kept = 0;
    if !all.is_empty() {
        for event in events()? {
            kept += usize::from(match event {
                Event::Activity(activity) => all.get_mut(&activity.session).is_some_and(|late| {
                    let is_in = activity.start != 0 && overlap(&late.windows, activity.start, activity.end) > 0;
                    late.busy.extend(is_in.then_some((activity.start, activity.end)));
                    is_in
                }),
                Event::Sample(sample) => {
                    let late = threads.get(&(sample.process, sample.tid)).and_then(|session| all.get_mut(session));
                    late.is_some_and(|late| {
                        let is_in = overlap(&late.windows, sample.time, sample.time.saturating_add(1)) > 0;
                        late.samples.extend(is_in.then_some((sample.time, sample.weight, sample.stack)));
                        is_in
                    })
                }
                Event::Wait(wait) => {
                    let late = threads.get(&(wait.process, wait.tid)).and_then(|session| all.get_mut(session));
                    late.is_some_and(|late| {
                        let is_in = overlap(&late.windows, wait.start, wait.end) > 0;
                        late.waits.extend(is_in.then_some((wait.start, wait.end, wait.stack, wait.reason)));
                        is_in
                    })
                }
                _ => false,
            });
            if kept >= MOST_KEPT {
                break;
            }
        }
    }
    Ok(all.into_iter().map(|(session, late)| (session, late.reasons(profile))).collect())
}

/// Returns the processes that delayed operations.
fn late(profile: &Profile) -> BTreeMap<SessionId, Late> {
    let mut all: BTreeMap<SessionId, Late> = BTreeMap::new();
    for delay in delays::find(&profile.communication, |session| session.0).all {
        all.entry(delay.session).or_default().delays.push(delay);
    }
    let length = |late: &Late| delays::sum(late.delays.iter().map(|delay| &delay.ns));
    let mut lengths: Vec<u64> = all.values().map(length).collect();
    lengths.sort_unstable_by_key(|length| std::cmp::Reverse(*length));
    if let Some(least) = lengths.get(MOST_PROCESSES) {
        all.retain(|_, late| length(late) > *least);
    }
    for late in all.values_mut() {
        let windows = late.delays.iter().map(|delay| (delay.from, delay.to));
        late.windows = merged(windows.filter(|(from, to)| from < to).collect());
    }
    all
}

impl Late {
    fn reasons(mut self, profile: &Profile) -> Reasons {
        let mut reasons = Reasons::default();
        let busy = merged(std::mem::take(&mut self.busy));
        self.samples.sort_unstable();
        self.waits.sort_unstable();
        for delay in &self.delays {
            let gaps = gaps(&busy, delay.from, delay.to);
            let idle: u64 = gaps.iter().map(|(from, to)| to - from).sum();
            let host = delay.ns.min(idle);
            reasons.host_ns = reasons.host_ns.saturating_add(host);
            reasons.gpu_ns = reasons.gpu_ns.saturating_add(delay.ns - host);
            // Idle time that others have as well is no reason: each part of it counts for as much.
            let part = |ns: u64| (u128::from(ns) * u128::from(host) / u128::from(idle.max(1))) as u64;
            let first = self.samples.partition_point(|(time, ..)| *time < delay.from);
            for (time, weight, stack) in self.samples[first..].iter().take_while(|(time, ..)| *time < delay.to) {
                if overlap(&gaps, *time, time + 1) > 0 && !profile.is_own_cost(*stack) {
                    let (ns, samples) = reasons.ran.entry(*stack).or_default();
                    (*ns, *samples) = (ns.saturating_add(part(*weight)), *samples + 1);
                }
            }
            // The waits of a thread follow each other.
            let first = self.waits.partition_point(|(_, end, ..)| *end <= delay.from);
            for (start, end, stack, reason) in self.waits[first..].iter().take_while(|(start, ..)| *start < delay.to) {
                let ns = part(overlap(&gaps, *start, *end));
                if ns > 0 {
                    let sum = reasons.waited.entry((*stack, *reason)).or_default();
                    *sum = sum.saturating_add(ns);
                }
            }
        }
        reasons
    }
}

/// Returns how much of an interval is in these disjoint ones.
fn overlap(intervals: &[(u64, u64)], start: u64, end: u64) -> u64 {
    let first = intervals.partition_point(|(_, to)| *to <= start);
    let of = intervals[first..].iter().take_while(|(from, _)| *from < end);
    of.map(|(from, to)| end.min(*to).saturating_sub(start.max(*from))).sum()
}

/// Returns the parts of an interval that are in none of these disjoint ones.
fn gaps(intervals: &[(u64, u64)], start: u64, end: u64) -> Vec<(u64, u64)> {
    let (mut at, mut gaps) = (start, Vec::new());
    let first = intervals.partition_point(|(_, to)| *to <= start);
    for (from, to) in intervals[first..].iter().take_while(|(from, _)| *from < end) {
        if *from > at {
            gaps.push((at, *from));
        }
        at = at.max(*to);
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}

/// Returns the union of intervals.
fn merged(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut union: Vec<(u64, u64)> = Vec::new();
    for (from, to) in intervals {
        match union.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => union.push((from, to)),
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a delay is the host's as far as the GPU was idle, and that what the thread did in that time explains it.
    ///
    /// ```text
    ///   100 left    ........ 180 #### 220 .. 230 began, 60 late: 90 of 130 were idle
    ///   thread      wait 100 to 140, sample 150, sample 190
    /// ```
    #[test]
    fn idle_time_is_the_hosts() {
        let delay = Delay { session: SessionId(0), tid: 1, from: 100, to: 230, ns: 60 };
        let late = |busy: &[(u64, u64)]| Late {
            delays: vec![delay],
            busy: busy.to_vec(),
            samples: vec![(190, 10, StackId(5)), (150, 30, StackId(4))],
            waits: vec![(90, 140, StackId(6), PointId(1))],
            ..Late::default()
        };
        let profile = Profile::default();
        let reasons = late(&[(200, 220), (180, 210), (300, 310)]).reasons(&profile);
        assert_eq!((reasons.host_ns, reasons.gpu_ns), (60, 0));
        assert_eq!(reasons.ran, [(StackId(4), (20, 1))].into());
        assert_eq!(reasons.waited, [((StackId(6), PointId(1)), 26)].into());
        let reasons = late(&[(0, 210)]).reasons(&profile);
        assert_eq!((reasons.host_ns, reasons.gpu_ns), (20, 40));
        assert!(reasons.ran.is_empty() && reasons.waited.is_empty());
    }
}
