//! Which call launched which GPU work. Either may arrive first.
//!
//! Work that arrives before its call waits for it. Both sides are bounded: work that waits too long, or arrives too
//! long after its call, is written without the call.

use std::collections::{BTreeMap, HashMap, VecDeque};

use model::event::{Activity, SessionId};

/// A launch: session and correlation id.
type Launch = (SessionId, u32);

/// Maximum number of calls remembered.
const MAX_CALLS: usize = 1 << 18;
/// Maximum number of waiting activities.
const MAX_WAITING: usize = 1 << 16;

/// The recent calls that launched work, and work that waits for its call.
pub(super) struct Launched {
    /// Whether there are calls to wait for.
    any: bool,
    calls: HashMap<Launch, u64>,
    order: VecDeque<Launch>,
    waiting: BTreeMap<u64, Activity>,
    by_launch: HashMap<Launch, Vec<u64>>,
    next: u64,
}

impl Launched {
    /// Starts with no launches. If no call ever launches, nothing waits.
    pub(super) fn new(any: bool) -> Self {
        Self {
            any,
            calls: HashMap::new(),
            order: VecDeque::new(),
            waiting: BTreeMap::new(),
            by_launch: HashMap::new(),
            next: 0,
        }
    }

    /// Adds a call that launched work, and returns the work that waited for it.
    pub(super) fn by(&mut self, launch: Launch, call: u64) -> Vec<Activity> {
        if self.calls.insert(launch, call).is_none() {
            self.order.push_back(launch);
        }
        if self.order.len() > MAX_CALLS
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
        let waited = self.by_launch.remove(&launch).unwrap_or_default();
        waited.into_iter().filter_map(|number| self.waiting.remove(&number)).collect()
    }

    /// Returns the call that launched this work, if it is known. If the call may still arrive, the work waits. Also
    /// returns work that must now be written without a call, because it has waited too long or has no call to wait for.
    pub(super) fn parent(&mut self, activity: Activity) -> (Option<u64>, Option<Activity>) {
        let launch = (activity.session, activity.correlation);
        if let Some(call) = self.calls.get(&launch) {
            return (Some(*call), None);
        }
        if !self.any {
            return (None, Some(activity));
        }
        self.next += 1;
        self.waiting.insert(self.next, activity);
        self.by_launch.entry(launch).or_default().push(self.next);
        let overdue = if self.waiting.len() > MAX_WAITING { self.waiting.pop_first() } else { None };
        if let Some((_, activity)) = &overdue {
            let launch = (activity.session, activity.correlation);
            // The oldest of all is the oldest of its launch.
            if let Some(numbers) = self.by_launch.get_mut(&launch) {
                numbers.remove(0);
                if numbers.is_empty() {
                    self.by_launch.remove(&launch);
                }
            }
        }
        (None, overdue.map(|(_, activity)| activity))
    }

    /// Returns all work that still waits, in order of arrival.
    pub(super) fn waiting(&mut self) -> Vec<Activity> {
        self.by_launch.clear();
        std::mem::take(&mut self.waiting).into_values().collect()
    }
}
