//! Who gets a place, and who must leave for it: the policy alone, without a socket.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::Peer;

/// Connections at a time.
pub(super) const MOST: usize = 512;
/// Connections of one peer at a time.
pub(super) const MOST_OF_PEER: usize = 256;
/// How long somebody who has just come may take to begin before its place goes to somebody else who needs one.
const TO_BEGIN: Duration = Duration::from_millis(50);
/// How long a reader may take before its place goes to somebody else who needs one.
const TO_READ: Duration = Duration::from_millis(250);

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The other side has its answer and should close. What it still sends is thrown away: closing at once would make the
    /// kernel reset the connection, and the answer could be lost.
    Leaving,
    /// The next request, or the first.
    Resting,
    /// The rest of a request.
    Asking,
    /// An answer to be made.
    Waiting,
    /// The answer to be taken.
    Answering,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) peer: Peer,
    pub(super) state: State,
    /// Since when it is in this state.
    pub(super) since: Instant,
    /// Answers that it has had.
    pub(super) answers: u64,
}

/// What becomes of a connection that has just come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is room.
    Welcome,
    /// It takes the place of this one.
    Instead(usize),
    /// It is closed: its own peers have more than their share, and all of them are being served.
    Refused,
}

/// Decides for a connection of `peer` that comes `now`.
pub(super) fn verdict(places: &[Place], peer: Peer, now: Instant) -> Verdict {
    let mut counts = HashMap::<Peer, usize>::new();
    for place in places {
        *counts.entry(place.peer).or_default() += 1;
    }
    let own = counts.get(&peer).copied().unwrap_or(0);
    if own < MOST_OF_PEER && places.len() < MOST {
        return Verdict::Welcome;
    }
    // Whoever has most gives way; where that is ourselves, one of ours.
    let most = counts.iter().max_by_key(|(peer, count)| (**count, **peer)).map(|(peer, _)| *peer);
    let from = if own >= MOST_OF_PEER { Some(peer) } else { most.filter(|most| counts[most] > own + 1).or(Some(peer)) };
    let candidates = places.iter().enumerate().filter(|(_, place)| Some(place.peer) == from);
    let least = candidates.filter_map(|(index, place)| Some((rank(place, now)?, place.since, index))).min();
    least.map_or(Verdict::Refused, |(_, _, index)| Verdict::Instead(index))
}

/// How much is lost if a connection ends now; `None` if it must not.
fn rank(place: &Place, now: Instant) -> Option<u8> {
    let age = now.duration_since(place.since);
    match place.state {
        State::Leaving => Some(0),
        State::Resting if place.answers > 0 || age > TO_BEGIN => Some(1),
        State::Asking if age > TO_BEGIN => Some(2),
        State::Answering if age > TO_READ => Some(3),
        // One that has had its answer and wants another stands behind one that has had none.
        State::Resting | State::Asking | State::Waiting | State::Answering => (place.answers > 0).then_some(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HONEST: Peer = Peer::User(1000);
    const OTHER: Peer = Peer::User(1001);

    fn place(peer: Peer, state: State, age: u64, answers: u64) -> Place {
        Place { peer, state, since: start() - Duration::from_millis(age), answers }
    }

    fn start() -> Instant {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(|| Instant::now() + Duration::from_secs(1000))
    }

    /// Check that a peer at its limit takes the place of one of its own, the most dispensable first, and of nobody else.
    #[test]
    fn own_places() {
        let mut places = vec![place(HONEST, State::Resting, 100_000, 3)];
        places.extend((0..MOST_OF_PEER as u64).map(|age| place(OTHER, State::Waiting, age, 0)));
        assert_eq!(verdict(&places, OTHER, start()), Verdict::Refused);
        // Each is more dispensable than those before.
        let dispensable = [
            (State::Waiting, 1, 1),
            (State::Answering, 300, 0),
            (State::Asking, 60, 0),
            (State::Resting, 60, 0),
            (State::Resting, 90, 0),
            (State::Leaving, 0, 1),
        ];
        for (index, (state, age, answers)) in (1..).zip(dispensable) {
            places[index] = place(OTHER, state, age, answers);
            assert_eq!(verdict(&places, OTHER, start()), Verdict::Instead(index));
        }
        assert_eq!(verdict(&places, HONEST, start()), Verdict::Welcome);
    }

    /// Check that where all places are taken, those with most give one up, even if all of theirs are in use.
    #[test]
    fn crowd() {
        let attackers = [2, 3, 4, 5].map(Peer::User);
        let mut places: Vec<_> = (0..MOST).map(|number| place(attackers[number % 4], State::Answering, 1, 1)).collect();
        let Verdict::Instead(index) = verdict(&places, HONEST, start()) else { panic!("a place is made") };
        places[index] = place(HONEST, State::Waiting, 0, 0);
        for _ in 0..MOST {
            if let Verdict::Instead(index) = verdict(&places, attackers[0], start()) {
                assert_ne!(places[index].peer, HONEST);
                places[index] = place(attackers[0], State::Waiting, 0, 0);
            }
        }
        assert!(places.iter().any(|place| place.peer == HONEST));
    }

    /// Check that whoever has just been accepted is not closed for the next one.
    #[test]
    fn newcomers() {
        for state in [State::Resting, State::Asking, State::Waiting, State::Answering] {
            let places: Vec<_> = (0..MOST_OF_PEER).map(|_| place(OTHER, state, 10, 0)).collect();
            assert_eq!(verdict(&places, OTHER, start()), Verdict::Refused);
        }
    }
}
