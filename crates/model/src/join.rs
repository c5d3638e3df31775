//! The exact join of launches with the GPU activities that they caused.
//!
//! A launch and its activities carry the same (session, correlation id). Only that key joins them, never their order or
//! their times. The two come from different sources, so either may arrive first:
//!
//! ```text
//!   launches    1   2   3   4           5        1 = the launch with correlation id 1
//!   activities          2       1,1,4       6    2 = an activity of launch 2; 1 has two, as a graph or a copy may
//!                       |       |  | |      |
//!   joined              2       1  1 4      6 waits: its launch may still arrive
//!                                           3 and 5 are in flight; at the end they are pending
//! ```
//!
//! Ids are 32 bits wide and count every CUDA call, so a long run reuses them. Only then do times decide: an activity
//! belongs to the last launch with its id that began before it.
//!
//! ```text
//!   launches    7 ------------------------- 7' --------------
//!   activities        a           b              c            a, b: of 7     c: of 7'
//! ```
//!
//! No streaming join can resolve one case: an activity that arrives before its launch 7' while 7 is still remembered is
//! joined to 7. This requires the ids to wrap within the launches kept ([`Limits`]) and an activity that arrives before
//! its marker.
//!
//! Memory is bounded: see [`Limits`]. Nothing is allocated per event once the tables have grown.

mod early;
mod key;
mod slab;
#[cfg(test)]
mod tests;

use hashbrown::{HashTable, hash_table::Entry};

use self::{
    early::{Fates, Waiting},
    key::{hash, key},
    slab::{List, NONE, Slab},
};
use crate::event::{Activity, Launch, LaunchKind, SessionId};

pub use self::early::Fate;

/// How far before its launch an activity may start and still be joined to it. The marker is called before the call
/// reaches the driver, so with a single clock this cannot happen. Where CUPTI uses its own clock, the offset between
/// the clocks drifts. Ids cannot wrap within this time, so an older activity belongs to an earlier use of the id.
pub const CLOCK_SLACK_NS: u64 = 10_000_000_000;

/// How much the join remembers. When a limit is reached, the oldest entry is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Launches without an activity so far.
    pub in_flight: usize,
    /// Launches of a kernel, copy or memset that have an activity, kept in case more activities follow.
    pub matched: usize,
    /// Launches of graphs that have an activity. A graph's kernels arrive in many buffers, so these are kept longer.
    pub matched_graphs: usize,
    /// Activities without a launch so far.
    pub waiting: usize,
    /// Calls known to have no activity ([`Fate`]), without a launch so far.
    pub fates: usize,
    /// Launches with the same id, which are reuses of a wrapped id. Also bounds the work for an id that is reused
    /// constantly.
    pub generations: usize,
}

impl Limits {
    /// About 120 MB when every table is full; a run in which the join keeps up uses a few MB.
    pub const DEFAULT: Self = Self {
        in_flight: 1 << 20,
        matched: 1 << 12,
        matched_graphs: 1 << 16,
        waiting: 1 << 18,
        fates: 1 << 16,
        generations: 8,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A result of the join. Every activity appears once, every launch at least once unless it has a [`Fate`].
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// This launch caused this activity.
    Joined(&'a Launch, &'a Activity),
    /// The launch of this activity was not seen, or was dropped to make room.
    Unmatched(&'a Activity),
    /// The activity of this launch did not arrive, or had not arrived when the launch was dropped to make room.
    Pending(&'a Launch),
}

/// Totals of the join.
///
/// At every moment `launches = launches_matched + launches_failed + launches_captured + launches_empty +
/// launches_pending + in flight` and
/// `activities = activities_matched + activities_unmatched + waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Launches seen.
    pub launches: u64,
    /// Launches with at least one activity.
    pub launches_matched: u64,
    /// Launches whose call returned an error.
    pub launches_failed: u64,
    /// Launches that became nodes of a graph.
    pub launches_captured: u64,
    /// Launches that gave the GPU nothing to do.
    pub launches_empty: u64,
    /// Launches given up as pending.
    pub launches_pending: u64,
    /// Of those, the ones that were dropped to make room.
    pub launches_evicted: u64,
    /// Activities seen.
    pub activities: u64,
    /// Activities with a launch.
    pub activities_matched: u64,
    /// Activities given up as unmatched.
    pub activities_unmatched: u64,
}

impl Counts {
    fn count_fate(&mut self, fate: Fate) {
        match fate {
            Fate::Failed => self.launches_failed += 1,
            Fate::Captured => self.launches_captured += 1,
            Fate::Empty => self.launches_empty += 1,
        }
    }
}

#[derive(Clone, Copy)]
struct Kept {
    launch: Launch,
    /// The previous launch with this id.
    older: u32,
    matched: bool,
}

impl Kept {
    #[inline]
    fn key(&self) -> u64 {
        key(self.launch.session, self.launch.correlation)
    }
}

/// Kept small: the join spends most of its time fetching these from the outer caches.
const _: () = assert!(size_of::<Kept>() == 48);

/// The join. Accepts input in any order and calls back with each [`Outcome`] as soon as it is certain.
pub struct Join {
    limits: Limits,
    /// The newest launch of each id, hashed by its key. The key itself is stored with the launch, which keeps this
    /// table small.
    newest: HashTable<u32>,
    launches: Slab<Kept>,
    lists: Lists,
    waiting: Waiting,
    fates: Fates,
    counts: Counts,
}

/// The queues of launches; each launch is on one.
struct Lists {
    in_flight: List,
    matched: List,
    graphs: List,
}

impl Lists {
    #[inline]
    fn of(&mut self, matched: bool, kind: LaunchKind) -> &mut List {
        match (matched, kind) {
            (false, _) => &mut self.in_flight,
            (true, LaunchKind::Graph) => &mut self.graphs,
            (true, _) => &mut self.matched,
        }
    }
}

/// Whether the activity can belong to this launch when there is no older candidate.
#[inline]
fn plausible(launch: &Launch, activity: &Activity) -> bool {
    activity.start == 0 || activity.start.saturating_add(CLOCK_SLACK_NS) >= launch.time
}

impl Default for Join {
    fn default() -> Self {
        Self::new(Limits::DEFAULT)
    }
}

impl Join {
    /// Creates an empty join.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            newest: HashTable::new(),
            launches: Slab::new(),
            lists: Lists { in_flight: List::EMPTY, matched: List::EMPTY, graphs: List::EMPTY },
            waiting: Waiting::new(),
            fates: Fates::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the totals so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Launches that may still be matched for the first time.
    pub fn in_flight(&self) -> usize {
        self.lists.in_flight.len()
    }

    /// Activities that may still be matched.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the last launch with this id, if it is remembered.
    pub fn launch(&self, session: SessionId, correlation: u32) -> Option<&Launch> {
        let key = key(session, correlation);
        let id = self.newest.find(hash(key), |id| self.launches[*id].key() == key)?;
        Some(&self.launches[*id].launch)
    }

    /// Returns every launch that an activity may still be joined to.
    pub fn remembered(&self) -> impl Iterator<Item = &Launch> {
        self.newest.iter().map(|id| &self.launches[*id].launch)
    }

    /// Adds a launch-class call that began, and joins the activities that waited for it.
    pub fn push_launch(&mut self, launch: &Launch, mut on: impl FnMut(Outcome<'_>)) {
        self.counts.launches += 1;
        let key = key(launch.session, launch.correlation);
        if let Some(fate) = self.fates.take(key) {
            self.counts.count_fate(fate);
            return;
        }
        let mut matched = false;
        if self.waiting.len() != 0 {
            let counts = &mut self.counts;
            self.waiting.take(key, |activity| {
                if plausible(launch, activity) {
                    matched = true;
                    counts.activities_matched += 1;
                    on(Outcome::Joined(launch, activity));
                } else {
                    // Launches arrive in order of time, so no later arrival is older.
                    counts.activities_unmatched += 1;
                    on(Outcome::Unmatched(activity));
                }
            });
            self.counts.launches_matched += u64::from(matched);
        }
        let kept = Kept { launch: *launch, older: NONE, matched };
        let id = self.launches.insert(kept, self.lists.of(matched, launch.kind));
        let launches = &self.launches;
        match self.newest.entry(hash(key), |id| launches[*id].key() == key, |id| hash(launches[*id].key())) {
            Entry::Vacant(entry) => {
                entry.insert(id);
            }
            Entry::Occupied(mut entry) => {
                let older = std::mem::replace(entry.get_mut(), id);
                self.launches[id].older = older;
                self.bound_generations(id, &mut on);
            }
        }
        self.make_room(&mut on);
    }

    /// Adds a GPU activity, and joins it now if its launch is known.
    pub fn push_activity(&mut self, activity: &Activity, mut on: impl FnMut(Outcome<'_>)) {
        self.counts.activities += 1;
        let key = key(activity.session, activity.correlation);
        let Some(id) = self.launch_of(key, activity) else {
            self.waiting.push(key, activity);
            while self.waiting.len() > self.limits.waiting
                && let Some(oldest) = self.waiting.take_oldest()
            {
                self.counts.activities_unmatched += 1;
                on(Outcome::Unmatched(&oldest));
            }
            return;
        };
        self.counts.activities_matched += 1;
        let kept = &mut self.launches[id];
        on(Outcome::Joined(&kept.launch, activity));
        if !kept.matched {
            kept.matched = true;
            self.counts.launches_matched += 1;
            let to =
                if kept.launch.kind == LaunchKind::Graph { &mut self.lists.graphs } else { &mut self.lists.matched };
            self.launches.transfer(id, &mut self.lists.in_flight, to);
            self.make_room(&mut on);
        }
    }

    /// Records that a launch-class call failed, was captured or was empty: its launch, whether already seen or not, has
    /// no activity. This applies to the last launch with this id; a launch that has an activity anyway stays matched.
    pub fn push_fate(&mut self, session: SessionId, correlation: u32, fate: Fate) {
        let key = key(session, correlation);
        match self.newest_of(key) {
            None => self.fates.push(key, fate, self.limits.fates),
            Some(id) if !self.launches[id].matched => {
                self.counts.count_fate(fate);
                self.forget(id);
            }
            Some(_) => {}
        }
    }

    /// Ends the input: waiting activities are unmatched, launches in flight are pending. The join is empty afterwards
    /// and keeps its counts.
    pub fn finish(&mut self, mut on: impl FnMut(Outcome<'_>)) {
        while let Some(activity) = self.waiting.take_oldest() {
            self.counts.activities_unmatched += 1;
            on(Outcome::Unmatched(&activity));
        }
        while let Some(id) = self.lists.in_flight.first() {
            self.counts.launches_pending += 1;
            on(Outcome::Pending(&self.launches[id].launch));
            self.forget(id);
        }
        *self = Self { counts: self.counts, ..Self::new(self.limits) };
    }

    #[inline]
    fn newest_of(&self, key: u64) -> Option<u32> {
        self.newest.find(hash(key), |id| self.launches[*id].key() == key).copied()
    }

    /// Returns the known launch that an activity belongs to.
    #[inline]
    fn launch_of(&self, key: u64, activity: &Activity) -> Option<u32> {
        let newest = self.newest_of(key)?;
        let kept = &self.launches[newest];
        if activity.start == 0 || kept.older == NONE {
            return plausible(&kept.launch, activity).then_some(newest);
        }
        let (mut best, mut oldest, mut id) = (NONE, newest, newest);
        while id != NONE {
            let time = self.launches[id].launch.time;
            if time <= activity.start && (best == NONE || time > self.launches[best].launch.time) {
                best = id;
            }
            if time <= self.launches[oldest].launch.time {
                oldest = id;
            }
            id = self.launches[id].older;
        }
        if best != NONE {
            return Some(best);
        }
        plausible(&self.launches[oldest].launch, activity).then_some(oldest)
    }

    /// Drops the oldest launch of an id that has too many.
    fn bound_generations(&mut self, newest: u32, on: &mut impl FnMut(Outcome<'_>)) {
        let (mut length, mut last) = (1, newest);
        while self.launches[last].older != NONE {
            last = self.launches[last].older;
            length += 1;
        }
        if length > self.limits.generations {
            self.evict(last, on);
        }
    }

    #[inline]
    fn make_room(&mut self, on: &mut impl FnMut(Outcome<'_>)) {
        let Limits { in_flight, matched, matched_graphs, .. } = self.limits;
        while self.lists.in_flight.len() > in_flight
            && let Some(oldest) = self.lists.in_flight.first()
        {
            self.evict(oldest, on);
        }
        while self.lists.matched.len() > matched
            && let Some(oldest) = self.lists.matched.first()
        {
            self.forget(oldest);
        }
        while self.lists.graphs.len() > matched_graphs
            && let Some(oldest) = self.lists.graphs.first()
        {
            self.forget(oldest);
        }
    }

    /// Drops a launch to make room; counts it if it had no activity yet.
    fn evict(&mut self, id: u32, on: &mut impl FnMut(Outcome<'_>)) {
        let kept = &self.launches[id];
        if !kept.matched {
            self.counts.launches_pending += 1;
            self.counts.launches_evicted += 1;
            on(Outcome::Pending(&kept.launch));
        }
        self.forget(id);
    }

    #[inline]
    fn forget(&mut self, id: u32) {
        let Kept { launch, older, matched } = self.launches[id];
        let key = self.launches[id].key();
        match self.newest.find_entry(hash(key), |newest| *newest == id) {
            Ok(entry) if older == NONE => {
                entry.remove();
            }
            Ok(mut entry) => *entry.get_mut() = older,
            Err(_) => {
                // There is a newer launch with this id.
                let mut newer = self.newest_of(key).unwrap_or(NONE);
                while newer != NONE && self.launches[newer].older != id {
                    newer = self.launches[newer].older;
                }
                if newer != NONE {
                    self.launches[newer].older = older;
                }
            }
        }
        self.launches.remove(id, self.lists.of(matched, launch.kind));
    }
}
