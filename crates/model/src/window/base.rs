//! What events in the window need of discarded ones.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    causes::Causes,
    event::{Event, Launch, RangedLaunch, Sampling, SessionCost, SessionId, StackId, Totals},
};

/// The most NVTX ranges of discarded launches that are remembered.
const MOST_RANGED: usize = 1 << 16;

/// The state that discarded events have left behind.
#[derive(Default)]
pub struct Base {
    causes: Causes,
    ranged: VecDeque<RangedLaunch>,
    sums: Sums,
}

/// Numbers that sessions report since their beginning.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    totals: BTreeMap<SessionId, Totals>,
    sampling: BTreeMap<SessionId, Sampling>,
    costs: BTreeMap<SessionId, SessionCost>,
}

/// The state before the window.
#[derive(Debug)]
pub struct Before {
    /// Launches that work in the window may belong to.
    pub launches: Vec<Launch>,
    /// Their NVTX ranges.
    pub ranged: Vec<RangedLaunch>,
    /// The nodes of graphs.
    pub nodes: Vec<Event>,
    /// The numbers of sessions.
    pub sums: Sums,
}

impl Base {
    /// Adds an event that is discarded.
    pub fn absorb(&mut self, event: &Event) {
        match event {
            Event::Launch(launch) => self.causes.launch(launch, |_| {}),
            Event::Activity(activity) => self.causes.activity(activity, |_| {}),
            Event::RangedLaunch(launch) => {
                if self.ranged.len() >= MOST_RANGED {
                    self.ranged.pop_front();
                }
                self.ranged.push_back(*launch);
            }
            event if self.sums.add(event) => {}
            other => self.causes.note(other),
        }
    }

    /// Returns the stacks that are needed.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.causes.nodes().stacks().chain(self.causes.remembered().map(|launch| launch.stack))
    }

    /// Returns the state as of now.
    pub fn snapshot(&self) -> Before {
        Before {
            launches: self.causes.remembered().copied().collect(),
            ranged: self.ranged.iter().copied().collect(),
            nodes: self.causes.nodes().events(),
            sums: self.sums.clone(),
        }
    }
}

impl Sums {
    /// Adds an event; `false` if it is of another kind.
    pub fn add(&mut self, event: &Event) -> bool {
        match event {
            Event::Totals(totals) => drop(self.totals.insert(totals.session, *totals)),
            Event::Sampling(sampling) => drop(self.sampling.insert(sampling.session, *sampling)),
            Event::SessionCost(cost) => drop(self.costs.insert(cost.session, *cost)),
            _ => return false,
        }
        true
    }

    /// Returns what has been added since `before`. What sessions counted is more than what the window contains, so only
    /// losses are included.
    pub fn since(&self, before: &Self) -> Vec<Event> {
        let mut events = Vec::new();
        for (session, now) in before.totals.iter().chain(&self.totals).collect::<BTreeMap<_, _>>() {
            let then = before.totals.get(session);
            let lost = |count: fn(&Totals) -> u64| count(now).saturating_sub(then.map_or(0, count));
            events.push(Event::Totals(Totals {
                session: *session,
                launches: 0,
                kernels: 0,
                kernel_ns: 0,
                copies: 0,
                memsets: 0,
                syncs: 0,
                dropped_by_cupti: lost(|totals| totals.dropped_by_cupti),
                dropped_queue_full: lost(|totals| totals.dropped_queue_full),
                invalid: lost(|totals| totals.invalid),
                nameless: lost(|totals| totals.nameless),
                buffers_refused: lost(|totals| totals.buffers_refused),
                dropped_launches: lost(|totals| totals.dropped_launches),
                ended: now.ended,
            }));
        }
        for (session, now) in &self.sampling {
            let then = before.sampling.get(session).copied().unwrap_or_default();
            events.push(Event::Sampling(Sampling {
                session: *session,
                recorded_ns: now.recorded_ns.saturating_sub(then.recorded_ns),
                whole_ns: now.whole_ns.saturating_sub(then.whole_ns),
            }));
        }
        for (session, now) in &self.costs {
            let then = before.costs.get(session).copied().unwrap_or_default();
            events.push(Event::SessionCost(SessionCost {
                session: *session,
                process_ns: now.process_ns.saturating_sub(then.process_ns),
                callbacks_ns: now.callbacks_ns.saturating_sub(then.callbacks_ns),
                stacks_ns: now.stacks_ns.saturating_sub(then.stacks_ns),
                sender_ns: now.sender_ns.saturating_sub(then.sender_ns),
            }));
        }
        events
    }
}
