//! Findings about members of communicators that do not agree: they call something else, or nothing.

use model::{
    communication::{Called, Mismatch, Missing},
    event::SessionId,
    profile::Profile,
};
use text::units::{bytes, time};

use super::finding::{Evidence, Finding, Kind, share};
use crate::{collectives::who, user_code::UserCode};

/// A host that is ahead of others calls earlier than they do, but not by this much.
const LONG_NS: u64 = 10_000_000_000;
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
