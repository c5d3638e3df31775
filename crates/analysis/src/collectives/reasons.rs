//! Why a rank was late: what its thread did while the others had already begun.
//!
//! ```text
//!   rank 0          [####====]        # waits for rank 1
//!   rank 1, thread  ~~~~L             until its launch, samples and waits of the thread say why: host
//!   rank 1, GPU           ..[====]    from the launch on, its GPU had other work, or took its time
//! ```

use std::{collections::BTreeMap, io};

use model::{
    communication::{Communication, Reasons},
    event::{Event, ProcessId, SessionId},
    profile::Profile,
};
use rustc_hash::FxHashMap;

use crate::Events;

/// The most threads that made others wait and are looked into, those with the longest waits.
const MOST_THREADS: usize = 64;

/// A thread, and the session that it launches for.
type Thread = (ProcessId, u32);

/// When a thread was late, before its launches and after them: disjoint intervals, by time.
#[derive(Default)]
struct Late {
    session: SessionId,
    host: Vec<(u64, u64)>,
    gpu: Vec<(u64, u64)>,
}

/// Returns how much of an interval is in these disjoint ones.
fn overlap(intervals: &[(u64, u64)], start: u64, end: u64) -> u64 {
    let first = intervals.partition_point(|(_, to)| *to <= start);
    let of = intervals[first..].iter().take_while(|(from, _)| *from < end);
    of.map(|(from, to)| end.min(*to) - start.max(*from)).sum()
}

fn length(intervals: &[(u64, u64)]) -> u64 {
    intervals.iter().map(|(from, to)| to - from).sum()
}

/// Finds out what the processes that made others wait did instead.
pub fn find<'a>(
    profile: &Profile,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
) -> io::Result<BTreeMap<SessionId, Reasons>> {
    let late = intervals(profile, &profile.communication);
    let mut reasons: BTreeMap<SessionId, Reasons> = BTreeMap::new();
    for late in late.values() {
        let sum = reasons.entry(late.session).or_default();
        sum.host_ns += length(&late.host);
        let only = late.gpu.iter().map(|(from, to)| to - from - overlap(&late.host, *from, *to));
        sum.gpu_ns += only.sum::<u64>();
    }
    if late.is_empty() {
        return Ok(reasons);
    }
    for event in events()? {
        match event {
            Event::Sample(sample) => {
                let Some(late) = late.get(&(sample.process, sample.tid)) else { continue };
                // A sample stands for the time around it.
                let is_own = || profile.is_own_cost(sample.stack);
                if overlap(&late.host, sample.time, sample.time + 1) > 0 && !is_own() {
                    let (ns, samples) = reasons.entry(late.session).or_default().ran.entry(sample.stack).or_default();
                    (*ns, *samples) = (ns.saturating_add(sample.weight), *samples + 1);
                }
            }
            Event::Wait(wait) => {
                let Some(late) = late.get(&(wait.process, wait.tid)) else { continue };
                let ns = overlap(&late.host, wait.start, wait.end);
                if ns > 0 {
                    let sum = reasons.entry(late.session).or_default().waited.entry((wait.stack, wait.reason));
                    *sum.or_default() += ns;
                }
            }
            _ => {}
        }
    }
    Ok(reasons)
}

/// Returns when threads were late.
fn intervals(profile: &Profile, all: &Communication) -> FxHashMap<Thread, Late> {
    let mut late: FxHashMap<Thread, Late> = FxHashMap::default();
    for operation in &all.operations {
        let members = all.members_of(operation);
        for (own, member) in (0_u32..).zip(members) {
            let others = members.iter().filter(|other| other.waited > 0 && other.waited_for == own);
            let Some(first) = others.map(|other| other.start).min() else { continue };
            let Some(info) = profile.sessions.get(&member.session) else { continue };
            let launched = member.launched.clamp(first, member.start);
            let of = late.entry((info.process, member.tid)).or_default();
            of.session = member.session;
            of.host.push((first, launched));
            of.gpu.push((launched, member.start));
        }
    }
    for of in late.values_mut() {
        of.host = merged(std::mem::take(&mut of.host));
        of.gpu = merged(std::mem::take(&mut of.gpu));
    }
    let mut lengths: Vec<u64> = late.values().map(|of| length(&of.host)).collect();
    lengths.sort_unstable_by_key(|length| std::cmp::Reverse(*length));
    if let Some(least) = lengths.get(MOST_THREADS) {
        late.retain(|_, of| length(&of.host) > *least);
    }
    late
}

/// Returns the union of intervals: a thread may be late in several operations at once.
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
