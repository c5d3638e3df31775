//! Activities and fates that arrived before their launch.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::{
    key::key,
    slab::{List, NONE, Slab},
};
use crate::event::Activity;

#[derive(Clone, Copy)]
struct Waiter {
    activity: Activity,
    /// The next activity waiting for the same launch.
    next: u32,
}

/// Activities whose launch has not arrived, in order of arrival, indexed by the launch's key.
pub struct Waiting {
    waiters: Slab<Waiter>,
    order: List,
    /// The first and the last activity waiting for each key.
    ends: HashMap<u64, (u32, u32), FxBuildHasher>,
}

impl Waiting {
    pub fn new() -> Self {
        Self { waiters: Slab::new(), order: List::EMPTY, ends: HashMap::default() }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn push(&mut self, key: u64, activity: &Activity) {
        let id = self.waiters.insert(Waiter { activity: *activity, next: NONE }, &mut self.order);
        let (_, last) = self.ends.entry(key).or_insert((id, NONE));
        if *last != NONE {
            self.waiters[*last].next = id;
        }
        *last = id;
    }

    /// Removes all activities waiting for `key`, in order of arrival.
    pub fn take(&mut self, key: u64, mut each: impl FnMut(&Activity)) {
        let Some((mut id, _)) = self.ends.remove(&key) else { return };
        while id != NONE {
            let waiter = self.waiters.remove(id, &mut self.order);
            each(&waiter.activity);
            id = waiter.next;
        }
    }

    /// Removes the activity that has waited longest.
    pub fn take_oldest(&mut self) -> Option<Activity> {
        let id = self.order.first()?;
        let waiter = self.waiters.remove(id, &mut self.order);
        let key = key(waiter.activity.session, waiter.activity.correlation);
        // The oldest of all is also the first of its key.
        if waiter.next == NONE {
            self.ends.remove(&key);
        } else if let Some(ends) = self.ends.get_mut(&key) {
            ends.0 = waiter.next;
        }
        Some(waiter.activity)
    }
}

/// Why a launch has no activity, as reported for its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The call returned an error.
    Failed,
    /// The call became a node of a graph.
    Captured,
    /// The call succeeded without giving the GPU anything to do, such as a copy of 0 bytes.
    Empty,
}

/// The known fates of calls whose launch has not been seen.
pub struct Fates {
    fates: Slab<(u64, Fate)>,
    order: List,
    slots: HashMap<u64, u32, FxBuildHasher>,
}

impl Fates {
    pub fn new() -> Self {
        Self { fates: Slab::new(), order: List::EMPTY, slots: HashMap::default() }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Remembers a fate, and drops the oldest when there are more than `limit`. A dropped fate is not counted: if its
    /// launch does arrive, that launch ends as pending.
    pub fn push(&mut self, key: u64, fate: Fate, limit: usize) {
        if self.slots.contains_key(&key) {
            return;
        }
        self.slots.insert(key, self.fates.insert((key, fate), &mut self.order));
        while self.len() > limit
            && let Some(oldest) = self.order.first()
        {
            let (key, _) = self.fates.remove(oldest, &mut self.order);
            self.slots.remove(&key);
        }
    }

    /// Removes and returns the fate of this launch.
    #[inline]
    pub fn take(&mut self, key: u64) -> Option<Fate> {
        if self.len() == 0 {
            return None;
        }
        let id = self.slots.remove(&key)?;
        let (_, fate) = self.fates.remove(id, &mut self.order);
        Some(fate)
    }
}
