//! Joins the parts that the members of a communicator have in an operation.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Called, Communication, Member, Members, Mismatch, Missing, Operation, link::Part, link::Parts};
use crate::{
    clocks::Clocks,
    event::{self, Communicator, SessionId},
};

/// The most mismatches that are kept: one for each communicator is enough.
const MOST_MISMATCHES: usize = 1024;

/// A part whose calls all belong to one communicator.
struct Piece {
    communicator: u64,
    /// The number of its first collective call, if it has one: its calls follow each other.
    number: Option<u64>,
    /// The member that called.
    rank: u32,
    session: SessionId,
    operation: event::Operation,
    calls: u32,
    bytes: u64,
    /// When it was called.
    time: u64,
    /// Of its kernels; `None` if nothing ran.
    member: Option<Member>,
    kernels: u32,
}

/// One end of a message: communicator, sender, receiver, number.
type Message = (u64, u32, u32, u64);

/// Joins everything. `kernels`: how many communication kernels there were in all.
pub fn join(parts: &mut Parts, communicators: &[Communicator], kernels: u64, clocks: Clocks) -> Communication {
    let mut all = Communication { kernels, clocks, ..Communication::default() };
    let ranks = members(communicators, &mut all.communicators);
    let (mut pieces, mut identified) = (Vec::new(), 0);
    let (mut sends, mut receives) = (FxHashMap::default(), FxHashMap::default());
    let sizes = all.communicators.clone();
    parts.each(
        |communicator| sizes.get(&communicator).map_or(0, |members| members.size),
        |part| {
            let Some(piece) = piece(&part, &ranks) else { return };
            identified += u64::from(piece.kernels);
            for call in part.calls.iter().filter(|call| call.operation.is_between_two()) {
                let (own, at) = (piece.rank, pieces.len() as u32);
                match call.operation {
                    event::Operation::Send => sends.insert((call.communicator, own, call.peer, call.number), at),
                    _ => receives.insert((call.communicator, call.peer, own, call.number), at),
                };
            }
            pieces.push(piece);
        },
    );
    all.dropped = parts.dropped();
    all.unidentified = kernels.saturating_sub(identified);
    let mut joined = 0;
    collective(&pieces, &mut all, &mut joined);
    messages(&pieces, &sends, &receives, &mut all, &mut joined);
    all.incomplete = identified - joined;
    all.operations.sort_by_key(|operation| Operation::all_there(slice(&all.members, operation)));
    all
}

fn slice<'a>(members: &'a [Member], operation: &Operation) -> &'a [Member] {
    &members[operation.members.0 as usize..][..operation.members.1 as usize]
}

/// Returns the number of each process in each communicator. A process that is several members of one, with several GPUs, has
/// none: its calls do not say which member they are of.
fn members(communicators: &[Communicator], of: &mut BTreeMap<u64, Members>) -> FxHashMap<(u64, SessionId), u32> {
    let mut ranks = FxHashMap::default();
    let mut several = FxHashSet::default();
    for known in communicators {
        let members = of.entry(known.id).or_default();
        members.size = members.size.max(known.size);
        members.sessions.insert(known.rank, known.session);
        if ranks.insert((known.id, known.session), known.rank).is_some_and(|before| before != known.rank) {
            several.insert((known.id, known.session));
        }
    }
    ranks.retain(|member, _| !several.contains(member));
    ranks
}

/// `None` if the calls belong to several communicators, or to one that is not known.
fn piece(part: &Part<'_>, ranks: &FxHashMap<(u64, SessionId), u32>) -> Option<Piece> {
    let first = part.calls.first()?;
    let rank = *ranks.get(&(first.communicator, part.session))?;
    let mut piece = Piece {
        communicator: first.communicator,
        number: None,
        rank,
        session: part.session,
        operation: first.operation,
        calls: 0,
        bytes: 0,
        time: first.time,
        member: None,
        kernels: part.kernels.len() as u32,
    };
    for call in part.calls {
        if call.communicator != piece.communicator {
            return None;
        }
        if call.operation != piece.operation {
            piece.operation = event::Operation::Other;
        }
        if !call.operation.is_between_two() {
            piece.calls += 1;
            piece.number = Some(piece.number.map_or(call.number, |number| number.min(call.number)));
        }
        piece.bytes = piece.bytes.saturating_add(call.bytes);
    }
    if let Some(kernel) = part.kernels.first() {
        let start = part.kernels.iter().map(|kernel| kernel.start).min().unwrap_or(kernel.start);
        let end = part.kernels.iter().map(|kernel| kernel.end).max().unwrap_or(kernel.end);
        let Some(session) = Some(part.session).filter(|_| start != 0) else { return Some(piece) };
        let (tid, launched, stack) = (kernel.tid, kernel.launched, kernel.stack);
        piece.member = Some(Member { session, tid, launched, stack, start, end, waited: 0, waited_for: 0, from: 0 });
    }
    Some(piece)
}

impl Piece {
    fn called(&self) -> Called {
        let stack = self.member.map(|member| member.stack);
        Called { session: self.session, operation: self.operation, bytes: self.bytes, stack }
    }
}

/// Joins collective operations: equal numbers of one communicator.
fn collective(pieces: &[Piece], all: &mut Communication, joined: &mut u64) {
    let mut order: Vec<&Piece> = pieces.iter().filter(|piece| piece.number.is_some()).collect();
    order.sort_unstable_by_key(|piece| (piece.communicator, piece.number, piece.rank));
    // The last call of each member: the order ends with it.
    let last: FxHashMap<(u64, SessionId), &Piece> =
        order.iter().map(|piece| ((piece.communicator, piece.session), *piece)).collect();
    let mut stopped = BTreeSet::new();
    for group in order.chunk_by(|a, b| (a.communicator, a.number) == (b.communicator, b.number)) {
        let first = group[0];
        if stopped.contains(&first.communicator) {
            continue;
        }
        // Members that grouped their calls differently ran different kernels: nothing can be compared.
        if group.iter().any(|piece| piece.calls != first.calls) {
            continue;
        }
        let differs = |piece: &&Piece| piece.operation != first.operation || piece.bytes != first.bytes;
        if group.iter().any(differs) {
            stopped.insert(first.communicator);
            if all.mismatches.len() < MOST_MISMATCHES {
                let called = group.iter().map(|piece| piece.called()).collect();
                let (communicator, number) = (first.communicator, first.number.unwrap_or(0));
                all.mismatches.push(Mismatch { communicator, number, called });
            }
            continue;
        }
        if let Some(missing) = missing(group, &all.communicators, &last) {
            // Nothing after that has all members.
            stopped.insert(first.communicator);
            all.missing.push(missing);
            continue;
        }
        let size = all.communicators.get(&first.communicator).map_or(0, |members| members.size);
        let begun: Vec<Member> = group.iter().filter_map(|piece| piece.member).collect();
        if begun.len() != group.len() || group.len() as u32 != size {
            continue;
        }
        *joined += group.iter().map(|piece| u64::from(piece.kernels)).sum::<u64>();
        let everyone: Vec<u32> = (0..size).collect();
        add(all, (first, first.operation), begun, |_| &everyone, |own| own as u32);
    }
}

/// Returns the recorded members that did not make a call, nor any later one.
fn missing(
    group: &[&Piece],
    communicators: &BTreeMap<u64, Members>,
    last: &FxHashMap<(u64, SessionId), &Piece>,
) -> Option<Missing> {
    let first = group.first()?;
    let recorded = &communicators.get(&first.communicator)?.sessions;
    if recorded.len() == group.len() {
        return None;
    }
    let last = |session: &SessionId| last.get(&(first.communicator, *session)).copied();
    let is_absent = |session: &&SessionId| last(session).is_none_or(|last| last.number < first.number);
    let absent: Vec<SessionId> = recorded.values().filter(is_absent).copied().collect();
    let before = last(absent.first()?);
    Some(Missing {
        communicator: first.communicator,
        number: first.number?,
        operation: first.operation,
        time: group.iter().map(|piece| piece.time).min()?,
        present: group.iter().map(|piece| piece.session).collect(),
        absent,
        last: before.and_then(|piece| Some((piece.number?, piece.called().stack))),
    })
}

/// Joins sends and receives: the parts that are connected by messages are one operation.
fn messages(
    pieces: &[Piece],
    sends: &FxHashMap<Message, u32>,
    receives: &FxHashMap<Message, u32>,
    all: &mut Communication,
    joined: &mut u64,
) {
    let mut partners: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut alone = FxHashSet::default();
    let mut sources: FxHashMap<u32, u32> = FxHashMap::default();
    for (message, at) in receives {
        if let Some(source) = sends.get(message) {
            let first = sources.entry(*at).or_insert(*source);
            *first = (*first).min(*source);
        }
    }
    for (ends, others) in [(sends, receives), (receives, sends)] {
        for (message, at) in ends {
            match others.get(message) {
                Some(other) => partners.entry(*at).or_default().push(*other),
                None => _ = alone.insert(*at),
            }
        }
    }
    let mut seen = FxHashSet::default();
    for &start in partners.keys() {
        let (mut connected, mut next) = (Vec::new(), vec![start]);
        while let Some(at) = next.pop() {
            if seen.insert(at) {
                connected.push(at);
                next.extend(partners.get(&at).into_iter().flatten().filter(|other| !seen.contains(other)));
            }
        }
        connected.sort_unstable_by_key(|at| pieces[*at as usize].rank);
        let of = |at: &u32| &pieces[*at as usize];
        // A part that also has collective operations belongs to these.
        let whole = |at: &u32| of(at).member.is_some() && of(at).number.is_none() && !alone.contains(at);
        if connected.is_empty() || !connected.iter().all(whole) {
            continue;
        }
        let place: FxHashMap<u32, u32> = connected.iter().zip(0..).map(|(at, place)| (*at, place)).collect();
        let with: Vec<Vec<u32>> = connected
            .iter()
            .map(|at| partners[at].iter().filter_map(|other| place.get(other)).copied().collect())
            .collect();
        *joined += connected.iter().map(|at| u64::from(of(at).kernels)).sum::<u64>();
        let begun = connected.iter().filter_map(|at| of(at).member).collect();
        let from = |own: usize| sources.get(&connected[own]).map_or(own as u32, |source| place[source]);
        add(all, (of(&connected[0]), event::Operation::SendReceive), begun, |member| &with[member], from);
    }
}

/// Adds an operation. `with`: the members that a member communicates with; `from`: one that sends to it.
fn add<'a>(
    all: &mut Communication,
    (piece, operation): (&Piece, event::Operation),
    mut members: Vec<Member>,
    with: impl Fn(usize) -> &'a [u32],
    from: impl Fn(usize) -> u32,
) {
    let starts: Vec<(u64, SessionId)> = members.iter().map(|member| (member.start, member.session)).collect();
    for (own, member) in members.iter_mut().enumerate() {
        let after = |other: u32| starts[other as usize].0.saturating_sub(member.start);
        let is_certain = |other: &u32| after(*other) > all.clocks.error(member.session, starts[*other as usize].1);
        let last = with(own).iter().copied().filter(is_certain).max_by_key(|other| (after(*other), *other));
        let hides = last.is_none() && with(own).iter().any(|other| after(*other) > 0);
        all.within_bound += u64::from(hides);
        let last = last.unwrap_or(own as u32);
        (member.waited, member.waited_for, member.from) = (after(last), last, from(own));
    }
    let range = (all.members.len() as u32, members.len() as u32);
    all.members.append(&mut members);
    all.operations.push(Operation {
        communicator: piece.communicator,
        operation,
        number: piece.number.unwrap_or(0),
        bytes: piece.bytes,
        members: range,
    });
}
