//! Graphs: nodes captured or added explicitly, cloned on instantiation, run with one correlation id when launched.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cupti::callback::{GraphData, ResourceData};
use cupti::ids::{node_type, resource};

use super::operation::Operation;
use super::{Outcome, behind, client, status};
use crate::script::script;

/// The contents of a node.
#[derive(Debug)]
enum Content {
    Operation(Operation),
    /// A copy of another graph.
    Child(Box<Graph>),
}

impl Content {
    fn node_type(&self) -> u32 {
        match self {
            Self::Operation(Operation::Kernel { .. }) => node_type::KERNEL,
            Self::Operation(Operation::Copy { .. }) => node_type::MEMCPY,
            Self::Operation(Operation::Memset { .. }) => node_type::MEMSET,
            Self::Child(_) => node_type::GRAPH,
        }
    }
}

/// A node. Its address is the `CUgraphNode`.
#[derive(Debug)]
pub struct Node {
    magic: u64,
    /// The graph's id in the upper half, the number within the graph in the lower.
    pub id: u64,
    content: Content,
}

/// A graph. Its address is the `CUgraph`; that of an instantiated one is the `CUgraphExec`.
#[derive(Debug)]
pub struct Graph {
    magic: u64,
    /// Its id.
    pub id: u32,
    /// Boxed, because their addresses are handles.
    #[allow(clippy::vec_box)]
    nodes: Vec<Box<Node>>,
}

const NODE_MAGIC: u64 = 0x7773_6e6f_6465;
const GRAPH_MAGIC: u64 = 0x7773_6772_7068;
const EXEC_MAGIC: u64 = 0x7773_6578_6563;

fn new_graph(magic: u64) -> Box<Graph> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    Box::new(Graph { magic, id: NEXT.fetch_add(1, Ordering::Relaxed), nodes: Vec::new() })
}

fn address<T>(of: &T) -> *mut c_void {
    std::ptr::from_ref(of).cast_mut().cast()
}

const NOTHING: GraphData = GraphData {
    graph: std::ptr::null_mut(),
    original_graph: std::ptr::null_mut(),
    node: std::ptr::null_mut(),
    original_node: std::ptr::null_mut(),
    node_type: 0,
    dependency: std::ptr::null_mut(),
    exec: std::ptr::null_mut(),
};

fn announce(cbid: u32, mut data: GraphData) {
    let context = client::context().0;
    let descriptor = std::ptr::from_mut(&mut data).cast();
    client::notify_resource(cbid, &ResourceData { context, stream: std::ptr::null_mut(), descriptor });
}

/// Whether the creation of the next node is reported.
fn is_seen() -> bool {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    script().unseen_nodes == 0 || CREATED.fetch_add(1, Ordering::Relaxed) >= script().unseen_nodes
}

impl Graph {
    /// Creates an empty graph.
    pub fn new() -> Box<Graph> {
        new_graph(GRAPH_MAGIC)
    }

    fn push(&mut self, content: Content) -> &Node {
        let id = (u64::from(self.id) << 32) | self.nodes.len() as u64;
        self.nodes.push(Box::new(Node { magic: NODE_MAGIC, id, content }));
        &self.nodes[self.nodes.len() - 1]
    }

    /// Adds a node and reports it to the CUPTI client.
    fn add_content(&mut self, content: Content) -> *mut c_void {
        let (graph, node_type) = (address(self), content.node_type());
        let node = address(self.push(content));
        if is_seen() {
            announce(resource::GRAPH_NODE_CREATED, GraphData { graph, node, node_type, ..NOTHING });
        }
        node
    }

    /// Adds an operation.
    pub fn add(&mut self, operation: Operation) -> *mut c_void {
        self.add_content(Content::Operation(operation))
    }

    /// Adds a node that contains a copy of another graph.
    pub fn add_child(&mut self, child: &Graph) -> *mut c_void {
        let copy = child.copied(new_graph(GRAPH_MAGIC));
        self.add_content(Content::Child(copy))
    }

    /// Copies the nodes to an empty graph, and reports each.
    fn copied(&self, mut to: Box<Graph>) -> Box<Graph> {
        let graph = address(&*to);
        for original in &self.nodes {
            let content = match &original.content {
                Content::Operation(operation) => Content::Operation(*operation),
                Content::Child(child) => Content::Child(child.copied(new_graph(GRAPH_MAGIC))),
            };
            let node_type = content.node_type();
            let node = address(to.push(content));
            let (original_graph, original_node) = (address(self), address(&**original));
            announce(resource::GRAPH_NODE_CREATED, GraphData { graph, node, node_type, ..NOTHING });
            let data = GraphData { graph, original_graph, node, original_node, node_type, ..NOTHING };
            announce(resource::GRAPH_NODE_CLONED, data);
        }
        to
    }

    /// Creates an executable copy of the graph, as a `CUgraphExec`.
    pub fn instantiate(&self) -> *mut c_void {
        let exec = new_graph(EXEC_MAGIC);
        let mut exec = self.copied(exec);
        let (id, mut next) = (exec.id, exec.nodes.len() as u64);
        exec.move_children(id, &mut next);
        Box::into_raw(exec).cast()
    }

    /// Moves the nodes of child graphs into the executable graph: they keep their handles, but not their ids.
    fn move_children(&mut self, exec: u32, next: &mut u64) {
        let graph = address(self);
        for node in &mut self.nodes {
            let handle = address(&**node);
            if let Content::Child(child) = &mut node.content {
                announce(resource::GRAPH_NODE_DESTROY_STARTING, GraphData { graph, node: handle, ..NOTHING });
                announce(resource::GRAPH_DESTROY_STARTING, GraphData { graph: address(&**child), ..NOTHING });
                for node in &mut child.nodes {
                    node.id = (u64::from(exec) << 32) | *next;
                    *next += 1;
                }
                child.move_children(exec, next);
            }
        }
    }

    /// Whether the other graph has the same nodes, except for what they do.
    fn is_like(&self, other: &Graph) -> bool {
        let alike = |one: &Node, other: &Node| match (&one.content, &other.content) {
            (Content::Child(one), Content::Child(other)) => one.is_like(other),
            (one, other) => one.node_type() == other.node_type(),
        };
        let mut pairs = self.nodes.iter().zip(&other.nodes);
        self.nodes.len() == other.nodes.len() && pairs.all(|(one, other)| alike(one, other))
    }

    /// Replaces what the nodes of an executable graph do by what those of another graph do.
    pub fn update(&mut self, from: &Graph) -> Outcome {
        if !self.is_like(from) {
            return Err(status::GRAPH_EXEC_UPDATE_FAILURE);
        }
        let exec = address(self);
        self.replace(from, exec);
        Ok(())
    }

    /// In the callbacks the node of the other graph is the node, and that of the executable graph the original.
    fn replace(&mut self, from: &Graph, exec: *mut c_void) {
        for (node, original) in self.nodes.iter_mut().zip(&from.nodes) {
            match (&mut node.content, &original.content) {
                (Content::Child(child), Content::Child(original)) => child.replace(original, exec),
                (Content::Operation(operation), Content::Operation(original)) => *operation = *original,
                _ => {}
            }
            let (original_node, node, node_type) = (address(&**node), address(&**original), node.content.node_type());
            announce(resource::GRAPH_NODE_UPDATED, GraphData { node, original_node, node_type, exec, ..NOTHING });
        }
    }

    /// Calls `run` with the nodes' ids and operations, in order.
    pub fn run(&self, run: &mut dyn FnMut(u64, &Operation)) {
        for node in &self.nodes {
            match &node.content {
                Content::Operation(operation) => run(node.id, operation),
                Content::Child(child) => child.run(run),
            }
        }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the nodes' handles.
    pub fn handles(&self) -> impl Iterator<Item = *mut c_void> {
        self.nodes.iter().map(|n| address(&**n))
    }
}

fn checked(handle: *mut c_void, magic: u64) -> Result<*mut Graph, u32> {
    // SAFETY: the program got the handle from us and has not destroyed it.
    let graph = unsafe { behind::<Graph>(handle) }?;
    if graph.magic == magic { Ok(handle.cast()) } else { Err(status::INVALID_HANDLE) }
}

/// Returns the graph of a `CUgraph`. As with the real API, a program must not use one graph from two threads at once.
pub fn from_handle<'a>(handle: *mut c_void) -> Result<&'a mut Graph, u32> {
    // SAFETY: it is a live graph, and the program uses it from one thread.
    checked(handle, GRAPH_MAGIC).map(|graph| unsafe { &mut *graph })
}

/// Returns the graph of a `CUgraphExec`. Several threads may launch it, but not while it is updated.
pub fn exec_from_handle<'a>(handle: *mut c_void) -> Result<&'a Graph, u32> {
    // SAFETY: it is a live executable graph, and the program does not update it in the meantime.
    checked(handle, EXEC_MAGIC).map(|graph| unsafe { &*graph })
}

/// Returns the graph of a `CUgraphExec`, to update it.
pub fn exec_to_update<'a>(handle: *mut c_void) -> Result<&'a mut Graph, u32> {
    // SAFETY: it is a live executable graph, and the program does not use it from another thread in the meantime.
    checked(handle, EXEC_MAGIC).map(|graph| unsafe { &mut *graph })
}

/// Returns the id of a `CUgraphNode`.
pub fn node_id(handle: *mut c_void) -> Option<u64> {
    // SAFETY: the program got the handle from us and has not destroyed its graph.
    let node = unsafe { behind::<Node>(handle) }.ok()?;
    (node.magic == NODE_MAGIC).then_some(node.id)
}

/// Destroys a `CUgraph` or, with `exec`, a `CUgraphExec`.
pub fn destroy(handle: *mut c_void, exec: bool) -> Outcome {
    let graph = checked(handle, if exec { EXEC_MAGIC } else { GRAPH_MAGIC })?;
    if exec {
        announce(resource::GRAPH_EXEC_DESTROY_STARTING, GraphData { exec: handle, ..NOTHING });
    } else {
        announce(resource::GRAPH_DESTROY_STARTING, GraphData { graph: handle, ..NOTHING });
    }
    // SAFETY: it came from `Box::into_raw`, and the program no longer uses it.
    drop(unsafe { Box::from_raw(graph) });
    Ok(())
}
