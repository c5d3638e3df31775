//! What came before its launch: activities that wait, and failures that are remembered.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::slab::{List, NONE, Slab};
use crate::event::Activity;

#[derive(Clone, Copy)]
struct Waiter {
    activity: Activity,
    /// The next to wait for the same launch.
    next: u32,
}

/// Activities whose launch has not come, in order of arrival, found by the launch's key.
pub struct Waiting {
    waiters: Slab<Waiter>,
    order: List,
    /// By key: the first and the last that wait for it.
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

    /// Takes all that wait for `key`, in order of arrival.
    pub fn take(&mut self, key: u64, mut each: impl FnMut(&Activity)) {
        let Some((mut id, _)) = self.ends.remove(&key) else { return };
        while id != NONE {
            let waiter = self.waiters.remove(id, &mut self.order);
            each(&waiter.activity);
            id = waiter.next;
        }
    }

    /// Takes the one that has waited longest.
    pub fn take_oldest(&mut self) -> Option<Activity> {
        let id = self.order.first()?;
        let waiter = self.waiters.remove(id, &mut self.order);
        let key = super::key(waiter.activity.session, waiter.activity.correlation);
        // The longest of all is also the first of its key.
        if waiter.next == NONE {
            self.ends.remove(&key);
        } else if let Some(ends) = self.ends.get_mut(&key) {
            ends.0 = waiter.next;
        }
        Some(waiter.activity)
    }
}

/// Calls known to have failed before their launch was seen.
pub struct Failures {
    keys: Slab<u64>,
    order: List,
    slots: HashMap<u64, u32, FxBuildHasher>,
}

impl Failures {
    pub fn new() -> Self {
        Self { keys: Slab::new(), order: List::EMPTY, slots: HashMap::default() }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Remembers a failure, and forgets the oldest when there are more than `limit`. A forgotten one costs no count: if
    /// its launch does come, that launch ends as pending.
    pub fn push(&mut self, key: u64, limit: usize) {
        if self.slots.contains_key(&key) {
            return;
        }
        self.slots.insert(key, self.keys.insert(key, &mut self.order));
        while self.len() > limit
            && let Some(oldest) = self.order.first()
        {
            let key = self.keys.remove(oldest, &mut self.order);
            self.slots.remove(&key);
        }
    }

    /// Whether this launch is known to have failed; it is forgotten by asking.
    #[inline]
    pub fn take(&mut self, key: u64) -> bool {
        if self.len() == 0 {
            return false;
        }
        match self.slots.remove(&key) {
            Some(id) => {
                self.keys.remove(id, &mut self.order);
                true
            }
            None => false,
        }
    }
}
