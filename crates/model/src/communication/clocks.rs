//! Estimates the clocks of hosts from the operations in which they took part together.
//!
//! In an operation in which each member needs what all others have, none ends before all have begun. On two hosts:
//!
//! ```text
//!   host a     ---[=======]--        the start on b is not after the end on a:    offset ≥ start of b − end of a
//!   host b     -----[=====]--        the end on b is not before the start on a:   offset ≤ end of b − start of a
//! ```
//!
//! The end of a receive is not before the start of the send, which says the same of one side.
//!
//! The offset of b at each of these times is between the two. Clocks drift evenly, so it is a line: `p + q s`, with the time `s`
//! from −½ to ½. Each bound cuts off a half of the plane of all (p, q), and what is left is a polygon that contains the truth.
//! Its middle is the estimate, and the largest distance of a corner from it the bound.
//!
//! Every other host has an offset to the first one along the hosts between them that add least to the bound.

use std::collections::BTreeMap;

use super::{Communication, Member};
use crate::{
    clocks::{Clock, Clocks, Correction},
    event::Operation,
};

/// Wall clocks that differ by more are not compared.
const MOST_OFFSET: f64 = 3_600e9;
/// No clock drifts by more than the kernel could correct.
const MOST_DRIFT: f64 = 500e-6;
/// How much times of GPUs may be wrong, or clocks not drift evenly, tried in this order.
const WRONG: [u64; 5] = [0, 1_000, 10_000, 100_000, 1_000_000];

/// Estimates clocks that are aligned by their wall clocks. `clocks`: the hosts, without corrections.
pub fn estimate(mut clocks: Clocks, all: &Communication) -> Clocks {
    let count = clocks.all.len();
    if count < 2 {
        return clocks;
    }
    let time = all.members.iter().filter(|member| member.start > 0);
    let (from, to) = time.fold((u64::MAX, 0), |(from, to), m| (from.min(m.start), to.max(m.end)));
    let span = Span { at: from / 2 + to / 2, ns: to.saturating_sub(from).max(1) as f64 };
    let mut pairs: BTreeMap<(u32, u32), Pair> = BTreeMap::new();
    for wrong in WRONG {
        let mut tried: BTreeMap<(u32, u32), Pair> = BTreeMap::new();
        for (number, operation) in (1..).zip(&all.operations) {
            // What begins on one host is there before the end on the other.
            let mut add = |(from, start): (u32, u64), (to, end): (u32, u64)| {
                let key = (from.min(to), from.max(to));
                if from != to && !pairs.contains_key(&key) {
                    tried.entry(key).or_insert_with(|| Pair::new(span, wrong)).add(from > to, start, end, number);
                }
            };
            let members = all.members_of(operation);
            if needs_all(operation.operation) {
                let hosts = by_clock(&clocks, members);
                for (one, other) in hosts.iter().flat_map(|one| hosts.iter().map(move |other| (one, other))) {
                    add((one.clock, one.start), (other.clock, other.end));
                }
            } else if operation.operation == Operation::SendReceive {
                for member in members {
                    let Some(from) = members.get(member.from as usize) else { continue };
                    add((clocks.number(from.session), from.start), (clocks.number(member.session), member.end));
                }
            }
        }
        tried.retain(|_, pair| !pair.corners.is_empty());
        pairs.append(&mut tried);
    }
    follow(&mut clocks, &pairs);
    clocks
}

/// Whether each member needs what all others have: roots may send, and leave.
fn needs_all(operation: Operation) -> bool {
    matches!(operation, Operation::AllReduce | Operation::AllGather | Operation::ReduceScatter | Operation::AllToAll)
}

/// The members of an operation on one host: the last start and the first end.
struct Host {
    clock: u32,
    start: u64,
    end: u64,
}

fn by_clock(clocks: &Clocks, members: &[Member]) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    for member in members {
        let clock = clocks.number(member.session);
        match hosts.iter_mut().find(|host| host.clock == clock) {
            Some(host) => (host.start, host.end) = (host.start.max(member.start), host.end.min(member.end)),
            None => hosts.push(Host { clock, start: member.start, end: member.end }),
        }
    }
    hosts
}

/// All times.
#[derive(Clone, Copy)]
struct Span {
    at: u64,
    ns: f64,
}

impl Span {
    fn place(self, time: u64) -> f64 {
        (time as i128 - i128::from(self.at)) as f64 / self.ns
    }
}

/// What is known about two clocks.
struct Pair {
    span: Span,
    wrong: u64,
    /// The corners of the polygon of all possible (p, q).
    corners: Vec<(f64, f64)>,
    operations: u64,
    /// The last one.
    number: u64,
    /// The first and the last time about which something is known.
    places: (f64, f64),
    /// The wall clocks agree with all.
    wall_clock_fits: bool,
}

impl Pair {
    fn new(span: Span, wrong: u64) -> Self {
        let (p, q) = (MOST_OFFSET, MOST_DRIFT * span.ns);
        let corners = vec![(-p, -q), (p, -q), (p, q), (-p, q)];
        Self { span, wrong, corners, operations: 0, number: 0, places: (f64::MAX, f64::MIN), wall_clock_fits: true }
    }

    /// Adds what an operation says: what starts by one clock, the second or the first, is not after the end by the other.
    fn add(&mut self, is_second: bool, start: u64, end: u64, number: u64) {
        self.operations += u64::from(number != self.number);
        self.number = number;
        let difference = (i128::from(start) - i128::from(end)) as f64 - self.wrong as f64;
        let (time, sign) = if is_second { (start, 1.0) } else { (end, -1.0) };
        self.at_least(self.span.place(time), difference, sign);
    }

    /// Keeps what satisfies `sign × (p + q place) ≥ least`.
    fn at_least(&mut self, place: f64, least: f64, sign: f64) {
        self.places = (self.places.0.min(place), self.places.1.max(place));
        self.wall_clock_fits &= least <= 0.0;
        let over = |(p, q): (f64, f64)| sign * (p + q * place) - least;
        if self.corners.iter().all(|corner| over(*corner) >= 0.0) {
            return;
        }
        let mut kept = Vec::with_capacity(self.corners.len() + 1);
        for (at, &corner) in self.corners.iter().enumerate() {
            let next = self.corners[(at + 1) % self.corners.len()];
            let (here, there) = (over(corner), over(next));
            if here >= 0.0 {
                kept.push(corner);
            }
            if (here >= 0.0) != (there >= 0.0) {
                let part = here / (here - there);
                kept.push((corner.0 + part * (next.0 - corner.0), corner.1 + part * (next.1 - corner.1)));
            }
        }
        self.corners = kept;
    }

    /// Returns what corrects the second clock, and by how much it may be wrong then.
    fn correction(&self) -> (Correction, u64) {
        let count = self.corners.len().max(1) as f64;
        let sum = self.corners.iter().fold((0.0, 0.0), |sum, corner| (sum.0 + corner.0, sum.1 + corner.1));
        let (p, q) = if self.wall_clock_fits { (0.0, 0.0) } else { (sum.0 / count, sum.1 / count) };
        let far = |place: f64| self.corners.iter().map(move |corner| (corner.0 - p + (corner.1 - q) * place).abs());
        let bound = far(self.places.0).chain(far(self.places.1)).fold(0.0, f64::max);
        let correction = match self.wall_clock_fits {
            true => Correction::default(),
            false => Correction { at: self.span.at, offset: -p, drift: -q / self.span.ns },
        };
        // Times are rounded.
        (correction, bound.ceil() as u64 + self.wrong + 1)
    }
}

/// Corrects all clocks that are connected with the first one.
fn follow(clocks: &mut Clocks, pairs: &BTreeMap<(u32, u32), Pair>) {
    let mut open: Vec<u32> = (1..clocks.all.len() as u32).collect();
    while let Some((via, next, bound)) = nearest(clocks, pairs, &open) {
        let (pair, is_forward) = match pairs.get(&(via, next)) {
            Some(pair) => (pair, true),
            None => (&pairs[&(next, via)], false),
        };
        let (own, _) = pair.correction();
        let own = if is_forward { own } else { own.inverse() };
        let known = clocks.all[via as usize].clone();
        let at = pair.span.at;
        let onto = Correction { at, ..known.correction };
        let correction = Correction { at, ..own }.then(&onto);
        let wall_clock_fits = pair.wall_clock_fits && (via == 0 || known.wall_clock_fits);
        let correction = if wall_clock_fits { Correction::default() } else { correction };
        let Clock { host, .. } = &clocks.all[next as usize];
        let clock =
            Clock { host: host.clone(), correction, bound: Some(bound), operations: pair.operations, wall_clock_fits };
        clocks.all[next as usize] = clock;
        open.retain(|clock| *clock != next);
    }
}

/// Returns the clock with the smallest bound of those that are not known yet, the one that it is compared with, and the bound.
fn nearest(clocks: &Clocks, pairs: &BTreeMap<(u32, u32), Pair>, open: &[u32]) -> Option<(u32, u32, u64)> {
    let reached = pairs.iter().flat_map(|((one, other), pair)| [(*one, *other, pair), (*other, *one, pair)]);
    let reached = reached.filter(|(via, next, _)| !open.contains(via) && open.contains(next));
    let bounded = reached.filter_map(|(via, next, pair)| {
        let known = clocks.all[via as usize].bound?;
        Some((via, next, known.saturating_add(pair.correction().1)))
    });
    bounded.min_by_key(|(_, _, bound)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        communication::Operation as Joined,
        event::{RECORDING_BITS, SessionId, StackId},
    };

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;
    /// All hosts are up for a day.
    const UP: u64 = 86_400 * SECOND;

    /// A host's clock: the truth, plus this.
    #[derive(Clone, Copy)]
    struct Wrong {
        offset: i64,
        ppm: f64,
    }

    impl Wrong {
        fn of(self, time: u64) -> u64 {
            let drift = self.ppm * 1e-6 * (time - UP) as f64;
            time.saturating_add_signed(self.offset).saturating_add_signed(drift.round() as i64)
        }
    }

    fn hosts(count: u32) -> Clocks {
        let clock = |host| Clock { host: format!("host{host}"), bound: (host == 0).then_some(0), ..Clock::default() };
        Clocks { all: (0..count).map(clock).collect(), of_recording: (0..count).collect() }
    }

    /// One operation per 10 ms and group of hosts, each with one member. Members begin within 3 ms, and take 50 µs together.
    fn story(wrong: &[Wrong], groups: &[&[u32]], count: u64) -> Communication {
        let mut all = Communication::default();
        let mut random = 7_u64;
        for number in 0..count {
            for group in groups {
                let mut late = || {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (random >> 33) % (3 * MS)
                };
                let starts: Vec<u64> = group.iter().map(|_| UP + number * 10 * MS + late()).collect();
                let end = starts.iter().max().expect("members") + 50_000;
                let first = all.members.len() as u32;
                all.members.extend(group.iter().zip(&starts).map(|(host, start)| Member {
                    session: SessionId(host << RECORDING_BITS),
                    tid: 1,
                    launched: 0,
                    stack: StackId(0),
                    start: wrong[*host as usize].of(*start),
                    end: wrong[*host as usize].of(end),
                    waited: 0,
                    waited_for: 0,
                    from: 0,
                }));
                let members = (first, group.len() as u32);
                all.operations.push(Joined {
                    communicator: 1,
                    operation: Operation::AllReduce,
                    number,
                    bytes: 1,
                    members,
                });
            }
        }
        all
    }

    /// Checks that all times of all hosts are right within the bounds, which are not larger than `most`.
    fn check(wrong: &[Wrong], groups: &[&[u32]], count: u64, most: u64) -> Clocks {
        let clocks = estimate(hosts(wrong.len() as u32), &story(wrong, groups, count));
        for (host, clock) in clocks.all.iter().enumerate() {
            let bound = clock.bound.expect("it is connected");
            assert!(bound <= most, "{bound} of host {host}");
            for number in [0, count / 3, count - 1] {
                let time = UP + number * 10 * MS;
                let (own, first) = (clock.correction.apply(wrong[host].of(time)), wrong[0].of(time));
                assert!(own.abs_diff(first) <= bound, "host {host}: {own}, not {first}, within {bound}");
            }
        }
        clocks
    }

    /// Check that offsets of up to a second and drifts of up to 100 ppm are found, within bounds as small as what operations take.
    #[test]
    fn offsets_and_drifts_are_found() {
        let wrong = |offset, ppm| Wrong { offset, ppm };
        for other in [wrong(0, 0.0), wrong(1_000_000_000, 100.0), wrong(-1_000_000_000, -100.0), wrong(400_000, 30.0)] {
            let clocks = check(&[wrong(0, 0.0), other], &[&[0, 1]], 1000, 100_000);
            assert_eq!((clocks.all[1].operations, clocks.all[1].wall_clock_fits), (1000, other.offset == 0));
        }
        // The first clock is the wrong one.
        check(&[wrong(123_456_789, -77.0), wrong(0, 0.0)], &[&[0, 1]], 1000, 100_000);
        // A single operation knows little: as much as its members waited for each other.
        check(&[wrong(0, 0.0), wrong(70_000_000, 0.0)], &[&[0, 1]], 1, 4 * MS);
    }

    /// Check that hosts are connected by others, and that nothing is said about one that is not.
    #[test]
    fn hosts_are_connected_by_others() {
        let wrong = [(0, 0.0), (900_000_000, 50.0), (-300_000_000, -100.0), (5, 0.0)];
        let wrong = wrong.map(|(offset, ppm)| Wrong { offset, ppm });
        check(&wrong[..3], &[&[0, 1], &[1, 2]], 1000, 200_000);
        check(&wrong[..3], &[&[1, 2], &[0, 2]], 1000, 200_000);
        let clocks = estimate(hosts(4), &story(&wrong, &[&[0, 1, 2], &[3]], 10));
        assert!(clocks.all[..3].iter().all(|clock| clock.bound.is_some()) && clocks.all[3].bound.is_none());
        assert_eq!(clocks.error(SessionId(0), SessionId(3 << RECORDING_BITS)), u64::MAX);
    }

    /// Check that clocks that do not drift evenly have a bound that says so, and that impossible ones have none.
    #[test]
    fn clocks_that_jump_are_not_trusted() {
        let right = Wrong { offset: 0, ppm: 0.0 };
        let jump = |by: u64| {
            let mut all = story(&[right, right], &[&[0, 1]], 100);
            for member in all.members.iter_mut().skip(100).filter(|member| member.session.recording() == 1) {
                (member.start, member.end) = (member.start + by, member.end + by);
            }
            estimate(hosts(2), &all).all[1].bound
        };
        assert!(jump(0) < Some(100_000));
        assert!(jump(200_000).is_some_and(|bound| bound >= 100_000));
        assert_eq!(jump(20 * MS), None);
    }
}
