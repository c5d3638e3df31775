//! What caused each GPU activity: the launch that it is joined to and, for a node of a graph, the stack that created the
//! node.

use crate::{
    event::{Activity, Event, Launch, SessionId, StackId},
    join::{Counts, Fate, Join, Limits, Outcome},
    nodes::Nodes,
};

/// An activity and what caused it.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    /// The launch; absent if it was not seen.
    pub launch: Option<&'a Launch>,
    /// The activity.
    pub activity: &'a Activity,
    /// The stack that created it, if it is a node of a graph and that was seen.
    pub capture: Option<StackId>,
}

/// A result.
#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    /// This activity ran.
    Ran(Joined<'a>),
    /// The activity of this launch did not arrive.
    Pending(&'a Launch),
}

/// Finds the cause of each activity. Accepts events in any order and calls back as soon as a cause is certain.
#[derive(Default)]
pub struct Causes {
    join: Join,
    nodes: Nodes,
}

impl Causes {
    /// Creates an empty one whose join uses `limits`.
    pub fn with_limits(limits: Limits) -> Self {
        Self { join: Join::new(limits), nodes: Nodes::default() }
    }

    /// Returns the join's totals so far.
    pub fn counts(&self) -> Counts {
        self.join.counts()
    }

    /// Launches that may still be matched for the first time, and activities that may still be matched.
    pub fn undecided(&self) -> (u64, u64) {
        (self.join.in_flight() as u64, self.join.waiting() as u64)
    }

    /// Returns every launch that an activity may still be joined to.
    pub fn remembered(&self) -> impl Iterator<Item = &Launch> {
        self.join.remembered()
    }

    /// The nodes of graphs.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Adds a launch.
    #[inline]
    pub fn launch(&mut self, launch: &Launch, mut on: impl FnMut(Cause<'_>)) {
        let Self { join, nodes } = self;
        nodes.launched(launch);
        join.push_launch(launch, |outcome| on(cause(outcome, nodes)));
    }

    /// Adds an activity.
    #[inline]
    pub fn activity(&mut self, activity: &Activity, mut on: impl FnMut(Cause<'_>)) {
        let Self { join, nodes } = self;
        join.push_activity(activity, |outcome| on(cause(outcome, nodes)));
    }

    /// Adds an event that says what became of a launch, or where the nodes of a graph come from. Others are ignored.
    pub fn note(&mut self, event: &Event) {
        let mut fate = |session: SessionId, correlation, fate| self.join.push_fate(session, correlation, fate);
        match event {
            Event::Failed(e) => fate(e.session, e.correlation, Fate::Failed),
            Event::Captured(e) => fate(e.session, e.correlation, Fate::Captured),
            Event::Empty(e) => fate(e.session, e.correlation, Fate::Empty),
            Event::NodeCreated(node) => {
                let call = (!node.own).then(|| self.join.launch(node.session, node.mark)).flatten();
                self.nodes.created(node, call.map(|launch| launch.stack));
            }
            Event::NodeStack(stack) => self.nodes.marked(stack),
            Event::NodeCopied(copied) => self.nodes.copied(copied),
            Event::GraphDestroyed(destroyed) => self.nodes.destroyed(destroyed),
            _ => {}
        }
    }

    /// Gives up what is undecided.
    pub fn finish(&mut self, mut on: impl FnMut(Cause<'_>)) {
        let Self { join, nodes } = self;
        join.finish(|outcome| on(cause(outcome, nodes)));
    }
}

#[inline]
fn cause<'a>(outcome: Outcome<'a>, nodes: &mut Nodes) -> Cause<'a> {
    let (launch, activity) = match outcome {
        Outcome::Joined(launch, activity) => (Some(launch), activity),
        Outcome::Unmatched(activity) => (None, activity),
        Outcome::Pending(launch) => return Cause::Pending(launch),
    };
    let capture = match activity.graph_node {
        0 => None,
        node => {
            let time = launch.map_or(activity.start, |launch| launch.time);
            nodes.stack(activity.session, node, time)
        }
    };
    Cause::Ran(Joined { launch, activity, capture })
}
