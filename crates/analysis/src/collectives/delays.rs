//! Which members delay operations themselves, and which only because they had to wait on another communicator.
//!
//! ```text
//!   rank 0   --[######====]                # waits    = all take part
//!   rank 1   --------[====]--[====]        rank 1 is late: 6
//!   rank 2   -------[######===]---         and for rank 2 it is late again, by the same 6: not counted twice
//!   rank 3   --[######====]--[====]        rank 3 has waited for rank 1, and is late for others: not its own delay
//! ```
//!
//! All members of a communicator leave an operation together. For its next one, each is ready at its start, less what it
//! waited on other communicators since, and less what it was already found to be late by. The last one to be ready delays
//! the operation by the time from the one before it; on two hosts only if that is more than their clocks may be wrong. Sends and receives are no such operations: the stages of a pipeline wait
//! for each other by design.

use std::collections::BTreeMap;

use model::{
    communication::{Communication, Member, Operation as Joined},
    event::{Operation, SessionId},
};
use rustc_hash::FxHashMap;

/// The operations of one kind on one communicator.
pub type Kind = (u64, Operation);

/// Who delayed operations.
#[derive(Debug, Default)]
pub struct Delays {
    /// By member, or group of members: how long it delayed operations, each time that it did.
    pub units: BTreeMap<u32, BTreeMap<Kind, Vec<u64>>>,
    /// How many operations were judged.
    pub judged: BTreeMap<Kind, u64>,
    /// Each single delay.
    pub all: Vec<Delay>,
    /// The time from the mean to the last member that was ready, added up: what even ranks would gain.
    pub uneven_ns: u64,
}

/// An operation that a member delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The member.
    pub session: SessionId,
    /// The thread that launched its kernel.
    pub tid: u32,
    /// When it left the last operation of the communicator.
    pub from: u64,
    /// When it began this one.
    pub to: u64,
    /// The delay.
    pub ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Done {
    waited: u64,
    late: u64,
    end: u64,
}

/// Finds out who delayed operations. `unit`: the member or group that a process belongs to.
pub fn find(all: &Communication, unit: impl Fn(SessionId) -> u32) -> Delays {
    let mut found = Delays::default();
    // What each process waited so far, until when, and what each unit was late by.
    let mut waits: FxHashMap<SessionId, (u64, u64)> = FxHashMap::default();
    let mut late: FxHashMap<u32, u64> = FxHashMap::default();
    // The same at the end of the last operation of a communicator.
    let mut done: FxHashMap<(u64, SessionId), Done> = FxHashMap::default();
    for operation in &all.operations {
        let members = all.members_of(operation);
        let there = Joined::all_there(members);
        if is_judged(all, operation.operation, members) {
            let ready = |member: &Member| {
                let before = done.get(&(operation.communicator, member.session))?;
                let (waited, until) = waits.get(&member.session).copied().unwrap_or_default();
                // On another stream, it may not have waited before this one.
                let beside = until.saturating_sub(member.start);
                let waited = (waited - before.waited).saturating_sub(beside);
                let unit = unit(member.session);
                let late = late.get(&unit).copied().unwrap_or(0) - before.late;
                Some((member.start.saturating_sub(waited).saturating_sub(late), unit, member.session))
            };
            // Nothing says when the members of a new communicator began.
            if let Some(ready) = members.iter().map(ready).collect::<Option<Vec<_>>>() {
                let kind = (operation.communicator, operation.operation);
                let first = members.iter().map(|member| member.start).min().unwrap_or(there);
                let error = |one, other| all.clocks.error(one, other);
                if let Some((session, ns)) = found.add(kind, &ready, there - first, &mut late, error) {
                    let last = members.iter().find(|member| member.session == session);
                    let from = done.get(&(operation.communicator, session)).map_or(0, |done| done.end);
                    found.all.extend(last.map(|last| Delay { session, tid: last.tid, from, to: last.start, ns }));
                }
            }
        }
        for member in members {
            let (waited, until) = waits.entry(member.session).or_default();
            *waited = waited.saturating_add(member.waited);
            if member.waited > 0 {
                *until = (*until).max(member.start.saturating_add(member.waited));
            }
        }
        for member in members {
            let (waited, late) = (waits[&member.session].0, late.get(&unit(member.session)).copied().unwrap_or(0));
            done.insert((operation.communicator, member.session), Done { waited, late, end: member.end });
        }
    }
    found
}

/// Adds up delays.
pub fn sum<'a>(delays: impl IntoIterator<Item = &'a u64>) -> u64 {
    delays.into_iter().fold(0, |sum, delay| sum.saturating_add(*delay))
}

/// Whether all members waited for the last one: none had ended before.
fn is_judged(all: &Communication, operation: Operation, members: &[Member]) -> bool {
    let Some(last) = members.iter().max_by_key(|member| member.start) else { return false };
    let waited = |member: &Member| match all.clocks.error(member.session, last.session) {
        u64::MAX => false,
        error => member.end.saturating_add(error) >= last.start,
    };
    operation != Operation::SendReceive && members.len() > 1 && members.iter().all(waited)
}

impl Delays {
    /// Adds an operation: when each member was ready, and the time from the first start to the last. Returns who delayed it.
    fn add(
        &mut self,
        kind: Kind,
        ready: &[(u64, u32, SessionId)],
        apart: u64,
        late: &mut FxHashMap<u32, u64>,
        error: impl Fn(SessionId, SessionId) -> u64,
    ) -> Option<(SessionId, u64)> {
        *self.judged.entry(kind).or_default() += 1;
        let &(last, unit, own) = ready.iter().max()?;
        let &(before, _, other) = ready.iter().filter(|(_, other, _)| *other != unit).max()?;
        if last - before <= error(own, other) {
            return None;
        }
        let mean = ready.iter().map(|(at, ..)| u128::from(*at)).sum::<u128>() / ready.len() as u128;
        self.uneven_ns = self.uneven_ns.saturating_add((last - mean as u64).min(apart));
        let delay = (last - before).min(apart);
        if delay == 0 {
            return None;
        }
        let sum = late.entry(unit).or_default();
        *sum = sum.saturating_add(delay);
        self.units.entry(unit).or_default().entry(kind).or_default().push(delay);
        Some((own, delay))
    }

    /// Returns how long a unit delayed operations.
    pub fn of(&self, unit: u32) -> u64 {
        sum(self.units.get(&unit).into_iter().flat_map(BTreeMap::values).flatten())
    }

    /// Returns the unit that delayed operations `times` as long as any other.
    pub fn culprit(&self, times: u64) -> Option<u32> {
        let mut sums: Vec<(u64, u32)> = self.units.keys().map(|unit| (self.of(*unit), *unit)).collect();
        sums.sort_unstable();
        let (most, unit) = sums.pop()?;
        let next = sums.pop().map_or(0, |(next, _)| next);
        (most > 0 && most >= next.saturating_mul(times)).then_some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 1;

    /// Operations, in order: the communicator, and who began when. All end together, 10 after the last start.
    fn story(operations: &[(u64, &[(u32, u64)])]) -> Communication {
        let mut all = Communication::default();
        for (communicator, starts) in operations {
            let (there, last) = starts.iter().zip(0..).map(|((_, at), index)| (*at, index)).max().expect("members");
            let first = all.members.len() as u32;
            all.members.extend(starts.iter().map(|&(session, start)| Member {
                session: SessionId(session),
                tid: 0,
                launched: start,
                stack: model::event::StackId(0),
                start,
                end: there + 10,
                waited: there - start,
                waited_for: last,
                from: 0,
            }));
            all.operations.push(Joined {
                communicator: *communicator,
                operation: Operation::AllReduce,
                number: 0,
                bytes: 1,
                members: (first, starts.len() as u32),
            });
        }
        all
    }

    fn sums(all: &Communication) -> Vec<(u32, u64)> {
        let delays = find(all, |session| session.0);
        delays.units.keys().map(|unit| (*unit, delays.of(*unit))).collect()
    }

    /// Check that the last one is late by the time from the one before it, from the second operation on.
    #[test]
    fn the_last_one_is_late() {
        let all = story(&[
            (ALL, &[(0, 100), (1, 900), (2, 100)]),
            (ALL, &[(0, 1000), (1, 1050), (2, 1020)]),
            (ALL, &[(0, 1100), (1, 1140), (2, 1100)]),
        ]);
        assert_eq!(sums(&all), [(1, 30 + 40)]);
        let delays = find(&all, |session| session.0);
        assert_eq!((delays.culprit(3), delays.judged[&(ALL, Operation::AllReduce)]), (Some(1), 2));
        // To the mean of 1023 and of 1113.
        assert_eq!(delays.uneven_ns, 27 + 27);
        let delay = |from, to, ns| Delay { session: SessionId(1), tid: 0, from, to, ns };
        assert_eq!(delays.all, [delay(910, 1050, 30), delay(1060, 1140, 40)]);
    }

    /// Check that a member that has waited on another communicator is not blamed for it, and that a delay is counted once.
    ///
    /// ```text
    ///   rank 0   [pair ####==]      [all ##==]
    ///   rank 1         [pair==]     [all ##==]    was late for the pair, and so both are for all
    ///   rank 2                 [all ########==]
    ///   rank 3                 [all ########==]
    /// ```
    #[test]
    fn delays_are_passed_on() {
        const PAIR: u64 = 2;
        let first: &[_] = &[(0, 10), (1, 10), (2, 10), (3, 10)];
        let all = story(&[
            (ALL, first),
            (PAIR, &[(0, 20), (1, 20)]),
            (PAIR, &[(0, 100), (1, 150)]),
            (ALL, &[(0, 180), (1, 180), (2, 130), (3, 130)]),
        ]);
        assert_eq!(sums(&all), [(1, 50)]);
        // The same, and rank 0 takes 7 longer after the pair.
        let all = story(&[
            (ALL, first),
            (PAIR, &[(0, 20), (1, 20)]),
            (PAIR, &[(0, 100), (1, 150)]),
            (ALL, &[(0, 187), (1, 180), (2, 130), (3, 130)]),
        ]);
        assert_eq!(sums(&all), [(0, 7), (1, 50)]);
    }

    /// Check that members that are alike, and an operation that some had left before others came, delay nothing.
    #[test]
    fn nobody_is_late_among_equals() {
        let same: &[_] = &[(0, 10), (1, 10)];
        assert_eq!(sums(&story(&[(ALL, same), (ALL, &[(0, 50), (1, 50)])])), []);
        let mut all = story(&[(ALL, same), (ALL, &[(0, 50), (1, 90)])]);
        all.members[2].end = 60;
        assert_eq!(sums(&all), []);
    }

    /// Check that groups are judged as one, and that none is the culprit if all are late in turn.
    #[test]
    fn groups_and_turns() {
        let starts: [&[_]; 3] = [
            &[(0, 10), (1, 10), (2, 10), (3, 10)],
            &[(0, 50), (1, 90), (2, 92), (3, 52)],
            &[(0, 150), (1, 192), (2, 190), (3, 152)],
        ];
        let all = story(&starts.map(|starts| (ALL, starts)));
        assert_eq!(sums(&all), [(1, 2), (2, 2)]);
        let hosts = find(&all, |session| u32::from(session.0 == 1 || session.0 == 2));
        assert_eq!((hosts.of(1), hosts.culprit(3)), (40 + 40, Some(1)));
        assert_eq!(find(&all, |session| session.0).culprit(3), None);
    }
}
