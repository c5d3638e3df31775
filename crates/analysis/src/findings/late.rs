//! Findings about ranks that make the others wait: always the same one, those of one host, or each in turn.

use std::collections::BTreeMap;

use model::{
    event::{Operation, SessionId},
    profile::{Profile, What},
    ranks::is_communication,
};
use text::{
    names::clean,
    short::shortened,
    units::{count, counted, percent, time},
};

use super::{
    advice::Setting,
    finding::{Evidence, Finding, Gain, Kind, share},
};
use crate::{
    collectives::{Delays, Instead, Late, delays, sum, who},
    names,
    user_code::Place,
};

/// A smaller share of the recorded time is not worth a change.
const WORTH: f64 = 0.05;
/// Even ranks differ by some percent.
const UNEVEN: f64 = 0.1;
/// One is always the late one if it delays operations so many times as long as any other.
const TIMES: u64 = 3;
/// And so often: a single delay is no pattern.
const OFTEN: usize = 5;
/// An operation is delayed if it is by this part of the mean delay or more: others differ by noise.
const NOISE: u64 = 10;
/// What the late one did is named if it is this share of the time that it was late.
const NAMED: f64 = 0.1;
const MAX_NAMED: usize = 3;
/// A kernel that takes longer than on other ranks is the reason if that is this share of the delay.
const KERNEL: f64 = 0.5;
/// The most characters of a kernel's name in a title.
const NAME: usize = 60;

/// One rank delays operations again and again, or all ranks of a host do; or all do in turn.
pub fn late(profile: &Profile, late: &[Late], setting: Setting) -> Option<Finding> {
    let all = &profile.communication;
    let clocks = &all.clocks;
    let delays_of_ranks = delays(all, |session| session.0);
    let rank = || {
        let (unit, often) = always(profile, &delays_of_ranks)?;
        let of = |late: &&Late| late.session.0 == unit;
        let session = late.iter().find(of)?.session;
        let slower = slower(profile, session, often.all_ns);
        let who = who(profile, session);
        Some(
            Culprit { who, is: "is", slower, late: late.iter().filter(of).collect() }.finding(profile, &often, setting),
        )
    };
    let host = || {
        let delays = clocks.are_several().then(|| delays(all, |session| clocks.number(session)))?;
        let (unit, often) = always(profile, &delays)?;
        let late = late.iter().filter(|late| clocks.number(late.session) == unit).collect();
        let who = format!("the ranks of host {}", clean(&clocks.all.get(unit as usize)?.host));
        Some(Culprit { who, is: "are", slower: None, late }.finding(profile, &often, setting))
    };
    rank().or_else(host).or_else(|| in_turn(profile, &delays_of_ranks))
}

/// Delays of operations of one kind, as far as they are more than noise, and of all kinds.
struct Often {
    communicator: u64,
    operation: Operation,
    count: u64,
    of: u64,
    ns: u64,
    all_ns: u64,
}

/// Returns the unit that delays operations much longer than all others, and which.
fn always(profile: &Profile, delays: &Delays) -> Option<(u32, Often)> {
    let unit = delays.culprit(TIMES)?;
    let all_ns = delays.of(unit);
    let (kind, delayed) = delays.units.get(&unit)?.iter().max_by_key(|(_, delayed)| sum(*delayed))?;
    let mean = sum(delayed) / delayed.len().max(1) as u64;
    let clear = delayed.iter().filter(|delay| **delay >= mean / NOISE);
    let (count, ns) = clear.fold((0, 0_u64), |(count, ns), delay: &u64| (count + 1, ns.saturating_add(*delay)));
    let of = delays.judged.get(kind).copied().unwrap_or(count);
    let is_worth = share(all_ns, profile.wall_ns()) >= WORTH && count >= OFTEN as u64;
    is_worth.then_some((unit, Often { communicator: kind.0, operation: kind.1, count, of, ns, all_ns }))
}

/// Those who are always late.
struct Culprit<'a> {
    who: String,
    is: &'static str,
    /// The kernel that takes longer there.
    slower: Option<String>,
    late: Vec<&'a Late>,
}

impl Culprit<'_> {
    fn finding(&self, profile: &Profile, often: &Often, setting: Setting) -> Finding {
        let Self { who, is, late, .. } = self;
        let sum = |of: fn(&Late) -> u64| late.iter().fold(0_u64, |sum, late| sum.saturating_add(of(late)));
        let (host, gpu) = (sum(|late| late.host_ns), sum(|late| late.gpu_ns));
        let whole = host.saturating_add(gpu);
        let is_much = |ns: u64| share(ns, whole) >= NAMED;
        let mut did: BTreeMap<(&Place, Option<&String>), u64> = BTreeMap::new();
        for Instead { place, reason, ns, .. } in late.iter().flat_map(|late| &late.instead) {
            let sum = did.entry((place, reason.as_ref())).or_default();
            *sum = sum.saturating_add(*ns);
        }
        let mut did: Vec<_> = did.into_iter().filter(|(_, ns)| is_much(*ns)).collect();
        did.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let mut why: Vec<(u64, String)> = did
            .iter()
            .take(MAX_NAMED)
            .map(|((place, reason), ns)| {
                let reason = reason.map(|reason| format!(" {reason}")).unwrap_or_default();
                (*ns, format!("{} {}{reason}", percent(*ns, whole), place.short()))
            })
            .collect();
        let slower = self.slower.as_ref().filter(|_| is_much(gpu));
        if is_much(gpu) {
            let kernel = slower.map(|slower| format!(", where {slower}")).unwrap_or_default();
            why.push((gpu, format!("{} with a busy GPU{kernel}", percent(gpu, whole))));
        }
        why.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        let on_gpu = is_much(gpu) && did.iter().all(|(_, ns)| *ns < gpu);
        let why: Vec<String> = why.into_iter().map(|(_, text)| text).collect();
        let reason = if why.is_empty() { String::new() } else { format!(": {}", why.join(", ")) };
        let advice = match did.first() {
            _ if on_gpu && slower.is_some() => {
                "find out why this kernel takes longer there: more data, or a slower GPU (clocks, other programs)"
                    .to_owned()
            }
            _ if on_gpu => "its GPU has more to do before: compare it with another rank (--rank)".to_owned(),
            Some(((_, Some(_)), _)) => {
                "the others have begun while it waits there: remove the wait, or divide the work evenly".to_owned()
            }
            Some(_) => "do it ahead of time or in another thread, or divide it evenly among the ranks".to_owned(),
            None if setting.waits && setting.samples => {
                "nothing is known about that time: compare it with another rank (--rank)".to_owned()
            }
            None => "record with --off-cpu and CPU samples to see what it does instead".to_owned(),
        };
        Finding {
            kind: Kind::LateRank,
            title: format!(
                "{who} {is} late in {} of {} {} operations of communicator {:016x}, by {} on average{reason}",
                count(often.count),
                count(often.of),
                often.operation.name(),
                often.communicator,
                time(often.ns / often.count),
            ),
            evidence: vec![
                Evidence::ns("late", often.all_ns),
                Evidence::ns("others waited", sum(|late| late.waited_ns)),
            ],
            place: did.first().filter(|_| !on_gpu).map(|((place, _), _)| (*place).clone()),
            advice,
            share: share(often.all_ns, profile.wall_ns()),
            gain: Gain::of(often.all_ns, profile),
        }
    }
}

/// Describes the kernel that takes longer on one rank than on the others, if that is much of its delay.
fn slower(profile: &Profile, session: SessionId, delay: u64) -> Option<String> {
    let own = profile.sessions.get(&session)?.process;
    let others: Vec<_> = profile.communication.communicators.values().flat_map(|of| of.sessions.values()).collect();
    let mut processes: Vec<_> =
        others.iter().filter_map(|id| profile.sessions.get(id)).map(|info| info.process).collect();
    processes.sort_unstable();
    processes.dedup();
    let others = processes.len().saturating_sub(1) as u64;
    // The time and the number of runs there, and on the others.
    let mut kernels: BTreeMap<u32, [(u64, u64); 2]> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        let What::Kernel(kernel) = key.what else { continue };
        if processes.binary_search(&key.process).is_ok() {
            let sum = &mut kernels.entry(kernel).or_default()[usize::from(key.process != own)];
            *sum = (sum.0.saturating_add(weight.ns), sum.1.saturating_add(weight.count));
        }
    }
    let is_communication = |kernel: u32| is_communication(&profile.kernel_names[kernel as usize].mangled);
    kernels.retain(|kernel, _| !is_communication(*kernel));
    let more = |[here, there]: &[(u64, u64); 2]| here.0.saturating_sub(there.0 / others.max(1));
    let (kernel, sums) = kernels.iter().max_by_key(|(_, sums)| more(sums))?;
    if others == 0 || share(more(sums), delay) < KERNEL {
        return None;
    }
    let [here, there] = *sums;
    let name = shortened(names::kernel(profile, *kernel), NAME);
    let mean = |(ns, count): (u64, u64)| time(ns / count.max(1));
    let same_count = here.1.saturating_mul(others) <= there.1.saturating_add(there.1 / 10);
    Some(match same_count && there.1 > 0 {
        true => format!("{name} takes {}, and {} on the others", mean(here), mean(there)),
        false => format!(
            "{name} runs {}, and {} on each other",
            counted(here.1, "time", "times"),
            counted(there.1 / others, "time", "times")
        ),
    })
}

/// Operations are delayed, but by another rank each time.
fn in_turn(profile: &Profile, delays: &Delays) -> Option<Finding> {
    let uneven = delays.uneven_ns;
    let delayed = || delays.units.values().flat_map(BTreeMap::values).map(Vec::len);
    let operations: usize = delayed().sum();
    if share(uneven, profile.wall_ns()) < UNEVEN || operations < OFTEN {
        return None;
    }
    let of_unit = delays.units.values().map(|kinds| kinds.values().map(Vec::len).sum::<usize>());
    let (most, judged) = (of_unit.max().unwrap_or(0) as u64, delays.judged.values().sum::<u64>());
    Some(Finding {
        kind: Kind::LateRank,
        title: format!(
            "ranks are late in turn: the last one comes {} after the mean of all, in {} operations, none in more than {} of them",
            time(uneven / judged.max(1)),
            count(judged),
            percent(most, judged),
        ),
        evidence: vec![
            Evidence::ns("late after the mean", uneven),
            Evidence::count("late ranks", delays.units.len() as u64),
        ],
        place: None,
        advice:
            "no rank is the reason: make steps equally long (lengths of inputs, experts), or synchronise less often"
                .into(),
        share: share(uneven, profile.wall_ns()),
        gain: Gain::of(uneven, profile),
    })
}
