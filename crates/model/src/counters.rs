//! Sums of events that were counted by call stack.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::event::{Counter, CounterId, CounterPoint, Hits, PointId, ProcessId, StackId};

/// The counted events, and their hits by stack.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// The events.
    pub all: BTreeMap<CounterId, Counter>,
    /// Places where they can occur.
    pub points: BTreeMap<PointId, CounterPoint>,
    /// Hits by place and stack.
    pub hits: FxHashMap<(PointId, ProcessId, StackId), HitWeight>,
}

/// Summed hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitWeight {
    /// Number of hits.
    pub count: u64,
    /// Their total weight.
    pub weight: u64,
    /// Of the hits, those whose weight is not included in `weight`: unreadable, negative or too large.
    pub outside: u64,
}

impl HitWeight {
    /// Adds another weight.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.weight = self.weight.saturating_add(other.weight);
        self.outside = self.outside.saturating_add(other.outside);
    }
}

impl Counters {
    /// Returns the event with this name.
    pub fn named(&self, name: &str) -> Option<&Counter> {
        self.all.values().find(|counter| counter.name == name)
    }

    /// Returns all hits of one event: place, process, stack and amount.
    pub fn of(
        &self,
        counter: CounterId,
    ) -> impl Iterator<Item = (&CounterPoint, ProcessId, StackId, HitWeight)> + use<'_> {
        self.hits.iter().filter_map(move |(&(point, process, stack), weight)| {
            let point = self.points.get(&point).filter(|point| point.counter == counter)?;
            Some((point, process, stack, *weight))
        })
    }

    /// Returns the number of hits of all events.
    pub fn count(&self) -> u64 {
        self.hits.values().fold(0, |sum, weight| sum.saturating_add(weight.count))
    }

    pub(crate) fn add(&mut self, hits: &Hits) {
        let weight = HitWeight { count: hits.count, weight: hits.weight, outside: hits.outside };
        self.hits.entry((hits.point, hits.process, hits.stack)).or_default().add(weight);
    }
}
