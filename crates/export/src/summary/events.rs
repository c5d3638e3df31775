//! Counted events in the summary: their hits, weights and stacks.

use std::cmp::Reverse;

use model::{
    counters::HitWeight,
    event::{Counter, Unit},
};
use serde::Serialize;

use super::tables::{TOP, share};
use crate::{
    flame_cache::Flames,
    flame_tree::{EventView, Line, Measure},
};

/// One event.
#[derive(Clone, Debug, Serialize)]
pub struct EventSummary {
    /// The user's name for it.
    pub name: String,
    /// The specification as given by the user.
    pub source: String,
    /// The weight of a hit; absent if hits are only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// The unit of the weight.
    pub unit: Unit,
    /// Number of places watched: functions, or places in them.
    pub points: u64,
    /// Hits.
    pub count: u64,
    /// Their total weight; absent if hits are only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<u64>,
    /// Hits whose weight was unreadable, negative, or at least 2^56: not included in `sum`.
    pub outside: u64,
    /// Hits in warpscope's injected library, and in CUPTI on its behalf; not included in `count`.
    pub own: u64,
    /// Distinct stacks, by name.
    pub stacks: u64,
    /// The stacks with the largest sums, or the largest counts without a weight.
    pub top_stacks: Vec<EventStack>,
    #[serde(skip)]
    pub(super) measure: Measure,
}

/// Hits from one stack.
#[derive(Clone, Debug, Serialize)]
pub struct EventStack {
    /// The frames, from the process to the place that was hit.
    pub path: Vec<String>,
    /// Hits.
    pub count: u64,
    /// Their total weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<u64>,
    /// Its share of the event's sum, or of its count without a weight; 0 to 1.
    pub share: f64,
}

/// Returns all events of a profile, in the order given by the user.
pub(super) fn of(flames: &Flames<'_>) -> Vec<EventSummary> {
    flames.profile.counters.all.values().map(|counter| event(flames, counter)).collect()
}

fn event(flames: &Flames<'_>, counter: &Counter) -> EventSummary {
    let profile = flames.profile;
    let view = EventView { counter: counter.id, by_count: false };
    let flame = flames.event(view);
    let weighted = !counter.weight.is_empty();
    let (mut all, mut own) = (HitWeight::default(), HitWeight::default());
    for (_, _, stack, weight) in profile.counters.of(counter.id) {
        if profile.is_injected(stack) { own.add(weight) } else { all.add(weight) }
    }
    let whole = if weighted { all.weight } else { all.count };
    let stacks = flame.lines.len() as u64;
    let mut lines: Vec<&Line> = flame.lines.iter().collect();
    lines.sort_by_key(|line| Reverse(line.weight.amount));
    let top_stacks = lines.iter().take(TOP).map(|line| EventStack {
        path: line.frames.iter().map(ToString::to_string).collect(),
        count: line.weight.hits,
        sum: weighted.then_some(line.weight.amount),
        share: share(line.weight.amount, whole),
    });
    EventSummary {
        name: counter.name.clone(),
        source: counter.source.clone(),
        weight: weighted.then(|| counter.weight.clone()),
        unit: counter.unit,
        points: profile.counters.points.values().filter(|point| point.counter == counter.id).count() as u64,
        count: all.count,
        sum: weighted.then_some(all.weight),
        outside: all.outside,
        own: own.count,
        stacks,
        top_stacks: top_stacks.collect(),
        measure: flame.measure,
    }
}
