//! Graphs: nodes captured or added explicitly, cloned on instantiation, run with one correlation id when launched.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use cupti::callback::ResourceData;
use cupti::ids::resource;

use super::operation::Operation;
use super::{Outcome, behind, client, status};

/// `CUpti_GraphData`, the descriptor of the node callbacks.
#[repr(C)]
struct GraphData {
    graph: *const c_void,
    original_graph: *const c_void,
    node: *const c_void,
    original_node: *const c_void,
    node_type: u32,
    dependency: *const c_void,
    exec: *const c_void,
}

const _: () = assert!(size_of::<GraphData>() == 56 && std::mem::offset_of!(GraphData, exec) == 48);

/// A node. Its address is the `CUgraphNode`.
#[derive(Debug)]
pub struct Node {
    magic: u64,
    /// The graph's id in the upper half, the number within the graph in the lower.
    pub id: u64,
    operation: Operation,
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

fn address<T>(of: &T) -> *const c_void {
    std::ptr::from_ref(of).cast()
}

fn announce(cbid: u32, mut data: GraphData, operation: &Operation) {
    data.node_type = match operation {
        Operation::Kernel { .. } => 0,
        Operation::Copy { .. } => 1,
        Operation::Memset { .. } => 2,
    };
    let context = client::context().0;
    let descriptor = std::ptr::from_mut(&mut data).cast();
    client::notify_resource(cbid, &ResourceData { context, stream: std::ptr::null_mut(), descriptor });
}

impl Graph {
    /// Creates an empty graph.
    pub fn new() -> Box<Graph> {
        new_graph(GRAPH_MAGIC)
    }

    fn push(&mut self, operation: Operation) -> &Node {
        let id = (u64::from(self.id) << 32) | self.nodes.len() as u64;
        self.nodes.push(Box::new(Node { magic: NODE_MAGIC, id, operation }));
        &self.nodes[self.nodes.len() - 1]
    }

    /// Adds a node and reports it to the CUPTI client.
    pub fn add(&mut self, operation: Operation) -> *mut c_void {
        let graph = address(self);
        let node = address(self.push(operation));
        let null = std::ptr::null();
        let data = GraphData {
            graph,
            original_graph: null,
            node,
            original_node: null,
            node_type: 0,
            dependency: null,
            exec: null,
        };
        announce(resource::GRAPH_NODE_CREATED, data, &operation);
        node.cast_mut()
    }

    /// Creates an executable copy of the graph, as a `CUgraphExec`.
    pub fn instantiate(&self) -> *mut c_void {
        let mut exec = new_graph(EXEC_MAGIC);
        let place = address(&*exec);
        for original in &self.nodes {
            let node = address(exec.push(original.operation));
            let data = GraphData {
                graph: place,
                original_graph: address(self),
                node,
                original_node: address(&**original),
                node_type: 0,
                dependency: std::ptr::null(),
                exec: place,
            };
            announce(resource::GRAPH_NODE_CLONED, data, &original.operation);
        }
        Box::into_raw(exec).cast()
    }

    /// Returns the nodes' ids and operations, in order.
    pub fn operations(&self) -> impl Iterator<Item = (u64, &Operation)> {
        self.nodes.iter().map(|node| (node.id, &node.operation))
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
        self.nodes.iter().map(|n| address(&**n).cast_mut())
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

/// Returns the graph of a `CUgraphExec`.
pub fn exec_from_handle<'a>(handle: *mut c_void) -> Result<&'a Graph, u32> {
    // SAFETY: it is a live executable graph, which is never changed.
    checked(handle, EXEC_MAGIC).map(|graph| unsafe { &*graph })
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
    // SAFETY: it came from `Box::into_raw`, and the program no longer uses it.
    drop(unsafe { Box::from_raw(graph) });
    Ok(())
}
