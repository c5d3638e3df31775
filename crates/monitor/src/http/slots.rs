//! Decides which connections get a slot and which are evicted: pure policy, without sockets.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::Peer;

/// Maximum number of connections.
pub(super) const MAX_CONNECTIONS: usize = 512;
/// Maximum number of connections per peer.
pub(super) const MAX_OF_PEER: usize = 256;
/// How long a new connection may stay silent before it can be evicted.
const REQUEST_GRACE: Duration = Duration::from_millis(50);
/// How long a client may take to read before it can be evicted.
const READ_GRACE: Duration = Duration::from_millis(250);

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The client has its answer and should close the connection. Further input is discarded: closing at once would
    /// make the kernel reset the connection, and the answer could be lost.
    Closing,
    /// The next request, or the first.
    Idle,
    /// The rest of a request.
    Receiving,
    /// The server's answer.
    Pending,
    /// The client to read the answer.
    Sending,
}

/// The facts about a connection that the policy uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) peer: Peer,
    pub(super) state: State,
    /// When it entered this state.
    pub(super) since: Instant,
    /// Number of answers it has received.
    pub(super) answers: u64,
}

/// The decision on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is a free slot.
    Accept,
    /// It replaces the connection with this index.
    Replace(usize),
    /// It is closed: its own peer has more than its share, and all of its connections are being served.
    Refused,
}

/// Decides on a connection of `peer` that arrives at `now`.
pub(super) fn verdict(slots: &[Slot], peer: Peer, now: Instant) -> Verdict {
    let mut counts = HashMap::<Peer, usize>::new();
    for slot in slots {
        *counts.entry(slot.peer).or_default() += 1;
    }
    let own = counts.get(&peer).copied().unwrap_or(0);
    if own < MAX_OF_PEER && slots.len() < MAX_CONNECTIONS {
        return Verdict::Accept;
    }
    // The peer with the most connections loses one; if that is `peer` itself, one of its own.
    let most = counts.iter().max_by_key(|(peer, count)| (**count, **peer)).map(|(peer, _)| *peer);
    let from = if own >= MAX_OF_PEER { Some(peer) } else { most.filter(|most| counts[most] > own + 1).or(Some(peer)) };
    let least = |of: &dyn Fn(&Slot) -> bool| {
        let candidates = slots.iter().enumerate().filter(|(_, slot)| of(slot));
        candidates.filter_map(|(index, slot)| Some((rank(slot, now)?, slot.since, index))).min()
    };
    // One user can have thousands of ids (subordinate ones), and a connection with each: then no peer has many. So a peer
    // without a connection may replace any.
    let replaced = least(&|slot| Some(slot.peer) == from).or_else(|| least(&|_| own == 0));
    replaced.map_or(Verdict::Refused, |(_, _, index)| Verdict::Replace(index))
}

/// The cost of evicting a connection now; `None` if it must not be evicted.
fn rank(slot: &Slot, now: Instant) -> Option<u8> {
    let age = now.duration_since(slot.since);
    match slot.state {
        State::Closing => Some(0),
        State::Idle if slot.answers > 0 || age > REQUEST_GRACE => Some(1),
        State::Receiving if age > REQUEST_GRACE => Some(2),
        State::Sending if age > READ_GRACE => Some(3),
        // A connection that already had an answer yields to one that had none.
        State::Idle | State::Receiving | State::Pending | State::Sending => (slot.answers > 0).then_some(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HONEST: Peer = Peer::User(1000);
    const OTHER: Peer = Peer::User(1001);

    fn slot(peer: Peer, state: State, age: u64, answers: u64) -> Slot {
        Slot { peer, state, since: start() - Duration::from_millis(age), answers }
    }

    fn start() -> Instant {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(|| Instant::now() + Duration::from_secs(1000))
    }

    /// Check that a peer at its limit replaces one of its own connections, the cheapest to evict first, and no others.
    #[test]
    fn a_peer_at_its_limit_replaces_its_own() {
        let mut slots = vec![slot(HONEST, State::Idle, 100_000, 3)];
        slots.extend((0..MAX_OF_PEER as u64).map(|age| slot(OTHER, State::Pending, age, 0)));
        assert_eq!(verdict(&slots, OTHER, start()), Verdict::Refused);
        // Each is cheaper to evict than those before.
        let dispensable = [
            (State::Pending, 1, 1),
            (State::Sending, 300, 0),
            (State::Receiving, 60, 0),
            (State::Idle, 60, 0),
            (State::Idle, 90, 0),
            (State::Closing, 0, 1),
        ];
        for (index, (state, age, answers)) in (1..).zip(dispensable) {
            slots[index] = slot(OTHER, state, age, answers);
            assert_eq!(verdict(&slots, OTHER, start()), Verdict::Replace(index));
        }
        assert_eq!(verdict(&slots, HONEST, start()), Verdict::Accept);
    }

    /// Check that if all slots are in use, the peer with the most loses one, even if all of its connections are busy.
    #[test]
    fn the_largest_peer_loses_a_slot() {
        let attackers = [2, 3, 4, 5].map(Peer::User);
        let mut slots: Vec<_> =
            (0..MAX_CONNECTIONS).map(|number| slot(attackers[number % 4], State::Sending, 1, 1)).collect();
        let Verdict::Replace(index) = verdict(&slots, HONEST, start()) else { panic!("a slot is freed") };
        slots[index] = slot(HONEST, State::Pending, 0, 0);
        for _ in 0..MAX_CONNECTIONS {
            if let Verdict::Replace(index) = verdict(&slots, attackers[0], start()) {
                assert_ne!(slots[index].peer, HONEST);
                slots[index] = slot(attackers[0], State::Pending, 0, 0);
            }
        }
        assert!(slots.iter().any(|slot| slot.peer == HONEST));
    }

    /// Check that a user with as many ids as there are slots, each with one connection, keeps nobody out, and that such a user
    /// takes no connection that is being served.
    #[test]
    fn a_user_with_many_ids_keeps_nobody_out() {
        let held = |state, age, answers| -> Vec<_> {
            (0..MAX_CONNECTIONS).map(|number| slot(Peer::User(100_000 + number as u32), state, age, answers)).collect()
        };
        for (state, age, answers) in [
            (State::Idle, 60, 0),
            (State::Receiving, 60, 0),
            (State::Sending, 300, 0),
            (State::Pending, 0, 1),
            (State::Closing, 0, 1),
        ] {
            let slots = held(state, age, answers);
            assert!(matches!(verdict(&slots, HONEST, start()), Verdict::Replace(_)), "{state:?}");
        }
        let mut slots = held(State::Idle, 60, 0);
        slots[7] = slot(HONEST, State::Pending, 1, 0);
        for _ in 0..2 * MAX_CONNECTIONS as u32 {
            let Verdict::Replace(index) = verdict(&slots, OTHER, start()) else { break };
            assert_ne!(slots[index].peer, HONEST);
            slots[index] = slot(Peer::User(200_000), State::Pending, 0, 0);
        }
    }

    /// Check that a connection just accepted is not evicted for the next one.
    #[test]
    fn new_connections_are_not_evicted() {
        for state in [State::Idle, State::Receiving, State::Pending, State::Sending] {
            let slots: Vec<_> = (0..MAX_OF_PEER).map(|_| slot(OTHER, state, 10, 0)).collect();
            assert_eq!(verdict(&slots, OTHER, start()), Verdict::Refused);
        }
    }
}
