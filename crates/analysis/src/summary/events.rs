//! Counted events in the summary: their hits, weights and stacks.

use std::cmp::Reverse;

use model::{
    counters::HitWeight,
    event::{Counter, Unit},
};
use serde::Serialize;
use text::units::share;

use super::top::TOP;
use crate::{
    Flames,
    flame_tree::{EventView, Line, Measure},
    idle_pools, waits,
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
    /// Of the time off the CPU, that of pools' threads without work: it is not in `top_stacks`, and shares do not include it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for_work: Option<IdlePools>,
    /// Distinct stacks, by name.
    pub stacks: u64,
    /// The stacks with the largest sums, or the largest counts without a weight.
    pub top_stacks: Vec<EventStack>,
    #[serde(skip)]
    /// The unit of its sums.
    pub measure: Measure,
}

/// Waits of pools' threads without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IdlePools {
    /// Waits.
    pub count: u64,
    /// Their time.
    pub sum: u64,
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
    let is_idle = |line: &&Line| {
        waits::is_off_cpu(counter) && line.frames.last().is_some_and(|frame| **frame == *idle_pools::WORK)
    };
    let (idle, mut lines): (Vec<&Line>, Vec<&Line>) = flame.lines.iter().partition(is_idle);
    let idle = IdlePools {
        count: idle.iter().map(|line| line.weight.hits).sum(),
        sum: idle.iter().fold(0, |sum, line| sum.saturating_add(line.weight.amount)),
    };
    let whole = if weighted { all.weight.saturating_sub(idle.sum) } else { all.count };
    let stacks = flame.lines.len() as u64;
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
        waiting_for_work: (idle.count > 0).then_some(idle),
        stacks,
        top_stacks: top_stacks.collect(),
        measure: flame.measure,
    }
}
