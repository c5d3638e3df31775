//! Findings about communicators: who makes the others wait, and who calls something else, or nothing.

use std::collections::BTreeMap;

use model::{
    communication::{Called, Mismatch, Missing},
    event::{Operation, SessionId},
    profile::{Profile, What},
    ranks::is_communication,
};
use text::{
    short::shortened,
    units::{bytes, count, counted, percent, time},
};

use super::{
    advice::Setting,
    finding::{Evidence, Finding, Gain, Kind, share},
};
use crate::{
    collectives::{Delays, Instead, Late, delays, who},
    names,
    user_code::UserCode,
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
/// A host that is ahead of others calls earlier than they do, but not by this much.
const LONG_NS: u64 = 10_000_000_000;
/// The most characters of a kernel's name in a title.
const NAME: usize = 60;

/// One rank delays operations again and again; or all do in turn.
pub fn late(profile: &Profile, late: &[Late], setting: Setting) -> Option<Finding> {
    let all = &profile.communication;
    let sessions: BTreeMap<u32, SessionId> =
        all.members.iter().map(|member| (member.session.0, member.session)).collect();
    let delays = delays(all, |session| session.0);
    one(profile, &delays, &sessions, late, setting).or_else(|| in_turn(profile, &delays))
}

/// Delays of operations of one kind, as far as they are more than noise.
struct Often {
    communicator: u64,
    operation: Operation,
    count: u64,
    of: u64,
    ns: u64,
}

impl Often {
    /// Of the kind that a unit delays longest.
    fn of(delays: &Delays, unit: u32) -> Option<Self> {
        let kinds = delays.units.get(&unit)?;
        let (kind, delayed) = kinds.iter().max_by_key(|(_, delayed)| delayed.iter().sum::<u64>())?;
        let mean = delayed.iter().sum::<u64>() / delayed.len().max(1) as u64;
        let clear = delayed.iter().filter(|delay| **delay >= mean / NOISE);
        let (count, ns) = clear.fold((0, 0), |(count, ns), delay| (count + 1, ns + delay));
        let of = delays.judged.get(kind).copied().unwrap_or(count);
        Some(Self { communicator: kind.0, operation: kind.1, count, of, ns })
    }
}

fn one(
    profile: &Profile,
    delays: &Delays,
    sessions: &BTreeMap<u32, SessionId>,
    late: &[Late],
    setting: Setting,
) -> Option<Finding> {
    let unit = delays.culprit(TIMES)?;
    let (session, delayed) = (*sessions.get(&unit)?, delays.of(unit));
    let often = Often::of(delays, unit)?;
    if share(delayed, profile.wall_ns()) < WORTH || often.count < OFTEN as u64 {
        return None;
    }
    let who = who(profile, session);
    let late = late.iter().find(|late| late.session == session);
    let (title, evidence) = (
        format!(
            "{who} is late in {} of {} {} operations of communicator {:016x}, by {} on average",
            count(often.count),
            count(often.of),
            often.operation.name(),
            often.communicator,
            time(often.ns / often.count),
        ),
        vec![Evidence::ns("late", delayed), Evidence::ns("others waited", late.map_or(0, |late| late.waited_ns))],
    );
    let whole = late.map_or(0, |late| late.host_ns.saturating_add(late.gpu_ns));
    let is_much = |ns: u64| share(ns, whole) >= NAMED;
    let did: Vec<&Instead> = late.iter().flat_map(|late| &late.instead).filter(|did| is_much(did.ns)).collect();
    let after = late.map_or(0, |late| late.gpu_ns);
    let mut why: Vec<(u64, String)> = did
        .iter()
        .take(MAX_NAMED)
        .map(|did| {
            let reason = did.reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default();
            (did.ns, format!("{} {}{reason}", percent(did.ns, whole), did.place.short()))
        })
        .collect();
    let slower = is_much(after).then(|| slower(profile, session, delayed)).flatten();
    if is_much(after) {
        let kernel = slower.as_ref().map(|slower| format!(", where {slower}")).unwrap_or_default();
        why.push((after, format!("{} on its GPU{kernel}", percent(after, whole))));
    }
    why.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let on_gpu = is_much(after) && did.iter().all(|did| did.ns < after);
    let why: Vec<String> = why.into_iter().map(|(_, text)| text).collect();
    let title = if why.is_empty() { title } else { format!("{title}: {}", why.join(", ")) };
    let advice = match did.first() {
        _ if on_gpu && slower.is_some() => {
            format!(
                "find out why this kernel takes longer on {who}: more data, or a slower GPU (clocks, other programs)"
            )
        }
        _ if on_gpu => format!("its GPU has more to do before: compare {who} with another one (--rank)"),
        Some(did) => match &did.reason {
            Some(_) => {
                format!("{who} waits there while the others have begun: remove the wait, or divide the work evenly")
            }
            None => "do it ahead of time or in another thread, or divide it evenly among the ranks".to_owned(),
        },
        None if setting.waits && setting.samples => {
            format!("nothing is known about {who} at that time: compare it with another one (--rank)")
        }
        None => "record with --off-cpu and CPU samples to see what it does instead".to_owned(),
    };
    Some(Finding {
        kind: Kind::LateRank,
        title,
        evidence,
        place: did.first().filter(|_| !on_gpu).map(|did| did.place.clone()),
        advice,
        share: share(delayed, profile.wall_ns()),
        gain: Gain::of(delayed, profile),
    })
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

/// Members of a communicator called different operations.
pub fn mismatch(profile: &Profile, code: &UserCode<'_>) -> Option<Finding> {
    let mismatches = &profile.communication.mismatches;
    let Mismatch { communicator, number, called } = mismatches.first()?;
    let same = |one: &Called| called.iter().filter(|other| other.what() == one.what()).count();
    // Those that are alone are probably wrong.
    let (odd, usual) = (called.iter().min_by_key(|one| same(one))?, called.iter().rev().max_by_key(|one| same(one))?);
    let text = |one: &Called| format!("{} of {}", one.operation.name(), bytes(one.bytes));
    let alone: Vec<&Called> = called.iter().filter(|one| one.what() == odd.what()).collect();
    let place = odd.stack.and_then(|stack| Some(code.place(profile.sessions.get(&odd.session)?.process, stack)));
    let at = place.as_ref().map(|place| format!(" at {}", place.short())).unwrap_or_default();
    Some(Finding {
        kind: Kind::CollectiveMismatch,
        title: format!(
            "{} {} {}{at} where {} {} {}: call {number} of communicator {communicator:016x}",
            several(profile, alone.iter().map(|one| one.session)),
            if alone.len() == 1 { "calls" } else { "call" },
            text(odd),
            several(profile, called.iter().filter(|one| one.what() != odd.what()).map(|one| one.session)),
            if called.len() - alone.len() == 1 { "calls" } else { "call" },
            text(usual),
        ),
        evidence: vec![Evidence::count("communicators with such calls", mismatches.len() as u64)],
        place,
        advice: "all members of a communicator must call the same operations in the same order, with the same sizes; what follows there is not compared".into(),
        share: 0.0,
        gain: None,
    })
}

/// A member does not call what all others have called long ago.
pub fn missing(profile: &Profile, code: &UserCode<'_>) -> Option<Finding> {
    // After the end of a time range, it may have called.
    if profile.part.is_some() {
        return None;
    }
    let ended = profile.end.map_or(profile.last_time, |end| end.time);
    // The last calls of a process that was killed may be lost.
    let is_whole = profile.ledger.sessions_cut_off == 0;
    let has_ended = |session: &SessionId| {
        let info = profile.sessions.get(session).and_then(|info| profile.processes.get(&info.process));
        is_whole && info.is_some_and(|process| process.end != 0)
    };
    let long = |missing: &&Missing| {
        let others = ended.saturating_sub(missing.time);
        others >= LONG_NS || missing.absent.iter().all(has_ended)
    };
    let mut all = profile.communication.missing.iter().filter(long);
    let first = all.next()?;
    let waited = ended.saturating_sub(first.time);
    let process = first.absent.first().and_then(|session| profile.sessions.get(session)).map(|info| info.process);
    let place = process.zip(first.last.and_then(|(_, stack)| stack)).map(|(process, stack)| code.place(process, stack));
    let after = match (first.last, &place) {
        (Some((number, _)), Some(place)) => format!("nothing after call {number} at {}", place.short()),
        (Some((number, _)), None) => format!("nothing after call {number}"),
        (None, _) => "nothing".to_owned(),
    };
    Some(Finding {
        kind: Kind::MissingMember,
        title: format!(
            "{} called {after} on communicator {:016x}, where {} called {} (call {}) {} before the end",
            several(profile, first.absent.iter().copied()),
            first.communicator,
            several(profile, first.present.iter().copied()),
            first.operation.name(),
            first.number,
            time(waited),
        ),
        evidence: vec![Evidence::count("communicators with a missing member", 1 + all.count() as u64)],
        place,
        advice: "see what the missing one did last (--rank, --by thread): it failed, took another branch, or waits elsewhere"
            .into(),
        share: share(waited, profile.wall_ns()),
        gain: None,
    })
}

/// Names processes: `rank 1`, `ranks 0 and 3`, or `3 others`.
fn several(profile: &Profile, sessions: impl Iterator<Item = SessionId>) -> String {
    let names: Vec<String> = sessions.map(|session| who(profile, session)).collect();
    match &names[..] {
        [one] => one.clone(),
        [one, other] => format!("{one} and {other}"),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
        [] => "nobody".to_owned(),
    }
}
