//! The stacks that created the nodes of graphs.
//!
//! A graph is created once and launched often. Its nodes remember the code that created them:
//!
//! ```text
//!   cudaLaunchKernel on a capturing stream  --> NodeCreated(node, the call)   the stack is that of the call's Launch
//!   cudaGraphAddKernelNode                  --> NodeCreated(node, a mark)     the stack arrives as a NodeStack
//!   cudaGraphInstantiate, child graphs      --> NodeCopied(clone, node)       the clone has the node's stack
//!   cudaGraphExecUpdate                     --> NodeCopied(clone, another)    from then on, the stack of the other
//! ```
//!
//! Records of a launch may arrive after the graph was updated, so a node keeps its earlier stacks, with their times.
//! Stacks and the events about nodes come from different sources, and either may arrive first. A destroyed graph is kept
//! until its place is needed: records of its last launches may still arrive.
//!
//! - A node is always known before the records of its work: the injected library's queue keeps the order of messages.
//! - The sums have both stacks. Outputs show the one that created the node; `--graph-stacks launch` merges them by the
//!   other.
//! - `--graph-level` enables CUPTI's `GRAPH_TRACE`, which replaces the records of all nodes by one record per launch.
//!   It is sent as a kernel named `[CUDA graph]`, so that every output and total works as for kernels, and appears
//!   under the launch.
//! - Limits: 524,288 nodes of one process, 1,048,576 in total, 256 stacks of one node. What does not fit is counted
//!   (`graph_nodes`), and appears under the launch.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Event, GraphDestroyed, Launch, NodeCopied, NodeCreated, NodeStack, ProcessId, SessionId, StackId};

/// The most nodes that are remembered, in total and of one session.
const MAX_NODES: usize = 1 << 20;
const MAX_NODES_OF_SESSION: usize = 1 << 19;
/// The most times that one node is updated with a different stack, until the oldest is forgotten.
const MAX_UPDATES: usize = 256;
/// The most marks whose node or stack has not arrived, and the most distinct nodes without a stack.
const MAX_WAITING: usize = 1 << 16;

/// What has the stack of a node: a launch-class call or, if the flag is set, a mark of the node's own.
type Mark = (SessionId, u32, bool);

/// Where a node's stack is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Here.
    Stack(StackId),
    /// In [`Marks`], once it has arrived.
    Awaited(Mark),
    /// Nowhere: the creation of the node was not seen.
    Unknown,
}

/// A node's stack when it was created, and those from later times on. Most nodes are never updated.
#[derive(Debug)]
struct Node {
    first: Origin,
    #[allow(clippy::box_collection, reason = "8 bytes in the many nodes without updates, instead of 32")]
    updates: Option<Box<VecDeque<(u64, Origin)>>>,
}

impl Node {
    fn updates(&self) -> impl DoubleEndedIterator<Item = &(u64, Origin)> {
        self.updates.iter().flat_map(|updates| updates.iter())
    }

    fn last(&self) -> Origin {
        self.updates().next_back().map_or(self.first, |(_, origin)| *origin)
    }

    fn at(&self, time: u64) -> Origin {
        self.updates().rev().find(|(since, _)| *since <= time).map_or(self.first, |(_, origin)| *origin)
    }

    fn update(&mut self, time: u64, origin: Origin) {
        if origin == self.last() {
            return;
        }
        let updates = self.updates.get_or_insert_default();
        if updates.len() == MAX_UPDATES
            && let Some((_, oldest)) = updates.pop_front()
        {
            self.first = oldest;
        }
        updates.push_back((time, origin));
    }
}

#[derive(Debug, Default)]
struct Graph {
    /// By their numbers in the graph.
    nodes: FxHashMap<u32, Node>,
    destroyed: bool,
}

/// The graphs of one session.
#[derive(Debug, Default)]
struct Graphs {
    by_id: FxHashMap<u32, Graph>,
    /// The number of their nodes.
    nodes: usize,
    /// Destroyed graphs, oldest first.
    destroyed: VecDeque<u32>,
}

/// Stacks whose node has not arrived, and nodes whose stack has not.
#[derive(Debug, Default)]
struct Marks {
    stacks: FxHashMap<Mark, Option<StackId>>,
    /// In order of arrival; some may be gone.
    order: VecDeque<Mark>,
    awaited: usize,
}

impl Marks {
    /// Adds a mark; returns the number of marks that were dropped to make room.
    fn insert(&mut self, mark: Mark, stack: Option<StackId>) -> u64 {
        self.awaited += usize::from(stack.is_none());
        self.stacks.insert(mark, stack);
        self.order.push_back(mark);
        let mut dropped = 0;
        while self.order.len() > MAX_WAITING
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(stack) = self.stacks.remove(&oldest) {
                self.awaited -= usize::from(stack.is_none());
                dropped += 1;
            }
        }
        dropped
    }

    /// Sets the stack of a mark that is awaited; false if it is not.
    fn arrive(&mut self, mark: Mark, stack: StackId) -> bool {
        match self.stacks.get_mut(&mark) {
            Some(awaited @ None) => {
                *awaited = Some(stack);
                self.awaited -= 1;
                true
            }
            _ => false,
        }
    }
}

/// The nodes of all graphs. Bounded: what does not fit is counted.
#[derive(Debug, Default)]
pub struct Nodes {
    sessions: FxHashMap<SessionId, Graphs>,
    /// The number of nodes.
    count: usize,
    marks: Marks,
    unknown: FxHashSet<(SessionId, u64)>,
    dropped: u64,
}

/// Splits a node's id: the graph's, and the node's number in it.
fn split(node: u64) -> (u32, u32) {
    ((node >> 32) as u32, node as u32)
}

impl Nodes {
    /// Returns the number of nodes, or of their stacks, that were dropped because there were too many.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the number of nodes that ran and whose creation was not seen.
    pub fn unknown(&self) -> u64 {
        self.unknown.len() as u64
    }

    /// Adds a node. `stack` is that of the call that created it, if it is known. A node that was cloned keeps the
    /// stack of its original.
    pub fn created(&mut self, event: &NodeCreated, stack: Option<StackId>) {
        let mark = (event.session, event.mark, event.own);
        let origin = match stack {
            Some(stack) => Origin::Stack(stack),
            None => match self.marks.stacks.get(&mark).copied() {
                Some(Some(stack)) => {
                    // Other nodes may refer to a call, but none to a node's own mark.
                    if event.own {
                        self.marks.stacks.remove(&mark);
                    }
                    Origin::Stack(stack)
                }
                Some(None) => Origin::Awaited(mark),
                None => {
                    self.dropped += self.marks.insert(mark, None);
                    Origin::Awaited(mark)
                }
            },
        };
        self.insert(event.session, event.node, origin);
    }

    /// Adds the stack of a mark.
    pub fn marked(&mut self, event: &NodeStack) {
        let mark = (event.session, event.mark, true);
        if !self.marks.arrive(mark, event.stack) {
            self.dropped += self.marks.insert(mark, Some(event.stack));
        }
    }

    /// Adds the stack of a launch, if a node waits for it.
    #[inline]
    pub fn launched(&mut self, launch: &Launch) {
        if self.marks.awaited > 0 {
            self.marks.arrive((launch.session, launch.correlation, false), launch.stack);
        }
    }

    /// Gives a node the stack of another from now on.
    pub fn copied(&mut self, event: &NodeCopied) {
        let origin = self.node(event.session, event.original).map_or(Origin::Unknown, Node::last);
        match self.node_mut(event.session, event.node) {
            Some(node) => node.update(event.time, origin),
            None => self.insert(event.session, event.node, origin),
        }
    }

    /// Forgets the nodes of a graph when their place is needed.
    pub fn destroyed(&mut self, event: &GraphDestroyed) {
        let Some(graphs) = self.sessions.get_mut(&event.session) else { return };
        if let Some(graph) = graphs.by_id.get_mut(&event.graph)
            && !graph.destroyed
        {
            graph.destroyed = true;
            graphs.destroyed.push_back(event.graph);
        }
    }

    /// Returns the stack that created a node which was launched at this time. `None` if it is not known; the node is
    /// then counted.
    #[inline]
    pub fn stack(&mut self, session: SessionId, id: u64, time: u64) -> Option<StackId> {
        let stack = match self.node(session, id).map_or(Origin::Unknown, |node| node.at(time)) {
            Origin::Stack(stack) => Some(stack),
            Origin::Awaited(mark) => self.marks.stacks.get(&mark).copied().flatten(),
            Origin::Unknown => None,
        };
        if stack.is_none() && self.unknown.len() < MAX_WAITING {
            self.unknown.insert((session, id));
        }
        stack
    }

    /// Returns events that describe the nodes as they are now.
    pub fn events(&self) -> Vec<Event> {
        // A node's own stack and the node follow each other, so all can use the same mark.
        let mark = u32::MAX;
        let mut events = Vec::new();
        for (&session, graphs) in &self.sessions {
            for (&graph, known) in &graphs.by_id {
                for (&number, node) in &known.nodes {
                    let node_id = u64::from(graph) << 32 | u64::from(number);
                    match node.last() {
                        Origin::Stack(stack) => {
                            let (process, tid, time) = (ProcessId(0), 0, 0);
                            events.push(Event::NodeStack(NodeStack { session, mark, process, tid, time, stack }));
                            events.push(Event::NodeCreated(NodeCreated { session, node: node_id, mark, own: true }));
                        }
                        Origin::Awaited((session, mark, own)) => {
                            if let Some(Some(stack)) = self.marks.stacks.get(&(session, mark, own)) {
                                let (process, tid, time, stack) = (ProcessId(0), 0, 0, *stack);
                                events.push(Event::NodeStack(NodeStack { session, mark, process, tid, time, stack }));
                                let created = NodeCreated { session, node: node_id, mark, own: true };
                                events.push(Event::NodeCreated(created));
                            } else {
                                events.push(Event::NodeCreated(NodeCreated { session, node: node_id, mark, own }));
                            }
                        }
                        Origin::Unknown => {}
                    }
                }
                if known.destroyed {
                    events.push(Event::GraphDestroyed(GraphDestroyed { session, graph }));
                }
            }
        }
        events
    }

    /// Returns the stacks that created nodes.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        let nodes = self.sessions.values().flat_map(|graphs| graphs.by_id.values()).flat_map(|g| g.nodes.values());
        let of_nodes = nodes.filter_map(|node| match node.last() {
            Origin::Stack(stack) => Some(stack),
            Origin::Awaited(_) | Origin::Unknown => None,
        });
        of_nodes.chain(self.marks.stacks.values().copied().flatten())
    }

    fn node(&self, session: SessionId, id: u64) -> Option<&Node> {
        let (graph, number) = split(id);
        self.sessions.get(&session)?.by_id.get(&graph)?.nodes.get(&number)
    }

    fn node_mut(&mut self, session: SessionId, id: u64) -> Option<&mut Node> {
        let (graph, number) = split(id);
        self.sessions.get_mut(&session)?.by_id.get_mut(&graph)?.nodes.get_mut(&number)
    }

    /// Adds a node that does not exist yet. A session at its limit makes room with its own destroyed graphs.
    fn insert(&mut self, session: SessionId, id: u64, first: Origin) {
        if self.node(session, id).is_some() {
            return;
        }
        let graphs = self.sessions.entry(session).or_default();
        while (graphs.nodes >= MAX_NODES_OF_SESSION || self.count >= MAX_NODES)
            && let Some(oldest) = graphs.destroyed.pop_front()
        {
            let freed = graphs.by_id.remove(&oldest).map_or(0, |graph| graph.nodes.len());
            graphs.nodes -= freed;
            self.count -= freed;
        }
        if graphs.nodes >= MAX_NODES_OF_SESSION || self.count >= MAX_NODES {
            self.dropped += 1;
            return;
        }
        let (graph, number) = split(id);
        graphs.by_id.entry(graph).or_default().nodes.insert(number, Node { first, updates: None });
        graphs.nodes += 1;
        self.count += 1;
    }
}
