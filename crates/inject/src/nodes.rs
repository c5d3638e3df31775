//! Graph nodes: reports which call created each node, and which node each was copied from. warpscope keeps the table.
//!
//! A node that a launch-class call creates on a capturing stream has that call's stack, which the marker has already
//! taken. A node that is added explicitly gets a marker of its own. Instantiation copies nodes: whatever it creates has
//! no stack of interest. Then it moves the nodes of child graphs into the executable graph, where they have other ids:
//! those are queried when the call returns. All of this is rare: a graph is created once and launched often.
//!
//! - A captured launch whose stack was not taken, because stacks are sampled, gets a marker for its node.
//! - Nodes that the GPU does not execute (events, host functions, memory) have no records, and are not reported.
//! - CUPTI 13.0 changed the id 0x5_0000_0000 of a child graph's node to 0x4_0000_0002 when it was moved. So when
//!   instantiation returns, the ids of all nodes that were cloned and not destroyed are queried, and those in another
//!   graph are reported.
//! - For an update CUPTI 13.0 passes the node of the other graph as the node, and that of the executable graph as the
//!   original: the reverse of a clone. A node that an update does not change is not reported, and stays under the code
//!   that first created it.
//! - The queue keeps the order of messages: a node is known before the records of its work.

use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use cupti::callback::{CallbackData, GraphData, ResourceData};
use cupti::ids::{INSTANTIATE_CALLS, domain, node_type, resource, result, site};
use cupti::types::GetGraphId;

use crate::cost::Callback;
use crate::marker::mark;
use crate::queue::QUEUE;
use crate::totals::{TOTALS, add};
use crate::{library, lifecycle, sys};

/// The callbacks about graphs. A release that does not know one rejects it: what it would report is then missing.
pub const CALLBACKS: [u32; 6] = [
    resource::GRAPH_NODE_CREATED,
    resource::GRAPH_NODE_DESTROY_STARTING,
    resource::GRAPH_NODE_CLONED,
    resource::GRAPH_NODE_UPDATED,
    resource::GRAPH_DESTROY_STARTING,
    resource::GRAPH_EXEC_DESTROY_STARTING,
];

/// The number of the next marker.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The most nodes of one instantiation whose later ids are queried.
const MOST_COPIES: usize = 1 << 16;

/// What happened to a node's handle during an instantiation. The handle of a destroyed node may be used again.
struct Handled {
    node: *mut c_void,
    /// The node's id and that of its original, or `None` if it was destroyed.
    copy: Option<(u64, u64)>,
}

thread_local! {
    /// The session in which the thread has begun a call that instantiates a graph; 0 outside such calls.
    static INSTANTIATING: Cell<u64> = const { Cell::new(0) };
    /// What that call has done so far.
    static HANDLED: RefCell<Vec<Handled>> = const { RefCell::new(Vec::new()) };
}

/// Whether this call instantiates a graph.
pub fn instantiates(of: u32, cbid: u32) -> bool {
    of == domain::DRIVER && INSTANTIATE_CALLS.contains(&cbid)
}

/// Whether the thread is in a call that instantiates a graph. The end of a call is not seen if its session has ended.
fn is_instantiating() -> bool {
    let session = INSTANTIATING.get();
    session != 0 && session == lifecycle::session()
}

/// Handles the entry and exit of a call that instantiates a graph.
pub fn on_instantiate(data: &CallbackData) {
    let entry = data.site == site::ENTER;
    INSTANTIATING.set(if entry { lifecycle::session() } else { 0 });
    lifecycle::guarded((), || {
        let handled = HANDLED.take();
        // SAFETY: on exit CUPTI points this at the call's result; null is checked. If the call failed, its nodes are gone.
        if !entry && unsafe { data.return_value.as_ref() } == Some(&0) {
            report_moved(handled);
        }
    });
}

/// Reports the nodes that have another id than when they were copied.
fn report_moved(mut handled: Vec<Handled>) {
    handled.sort_by_key(|handled| handled.node);
    for same in handled.chunk_by(|one, other| one.node == other.node) {
        let Some(Handled { node, copy: Some((copied, original)) }) = same.last() else { continue };
        // Within its graph a node moves only to the place of another one that had its stack.
        if let Some(moved) = id(*node).filter(|moved| moved >> 32 != copied >> 32) {
            report_copy(moved, *original);
        }
    }
}

fn remember(handled: Handled) {
    lifecycle::guarded((), || {
        HANDLED.with_borrow_mut(|all| {
            if all.len() < MOST_COPIES {
                all.push(handled);
            }
        });
    });
}

/// Handles a callback about a graph. `launch` is the correlation id of the thread's current launch-class call, if its
/// stack was taken.
#[cold]
#[inline(never)]
pub fn on_event(callback: &Callback, cbid: u32, data: &ResourceData, launch: Option<u32>) {
    // SAFETY: CUPTI passes this type for its callbacks about graphs, or null; it lives as long as the callback.
    let Some(graph) = (unsafe { data.descriptor.cast::<GraphData>().as_ref() }) else { return };
    match cbid {
        resource::GRAPH_NODE_CREATED => created(callback, graph, launch),
        resource::GRAPH_NODE_DESTROY_STARTING if is_instantiating() => {
            remember(Handled { node: graph.node, copy: None });
        }
        resource::GRAPH_NODE_CLONED => copied(graph),
        resource::GRAPH_NODE_UPDATED => updated(graph),
        resource::GRAPH_DESTROY_STARTING => {
            destroyed(library::cupti().and_then(|cupti| cupti.get_graph_id), graph.graph);
        }
        resource::GRAPH_EXEC_DESTROY_STARTING => {
            destroyed(library::cupti().and_then(|cupti| cupti.get_graph_exec_id), graph.exec);
        }
        _ => {}
    }
}

/// Whether the GPU executes a node of this type, so that it has records.
fn is_executed(kind: u32) -> bool {
    matches!(kind, node_type::KERNEL | node_type::MEMCPY | node_type::MEMSET)
}

fn created(callback: &Callback, graph: &GraphData, launch: Option<u32>) {
    if is_instantiating() || !is_executed(graph.node_type) {
        return;
    }
    let Some(node) = id(graph.node) else { return };
    let (mark, own) = match launch {
        Some(correlation) => (correlation, 0),
        None => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            callback.taking_stack(|| mark(number.into(), wire::WORK_NODE, lifecycle::session(), 0));
            (number, 1)
        }
    };
    let mut bytes = [0; wire::NodeCreated::SIZE];
    wire::NodeCreated { node, mark, own }.encode(&mut bytes);
    report(&bytes);
}

fn copied(graph: &GraphData) {
    if !is_executed(graph.node_type) {
        return;
    }
    let (Some(node), Some(original)) = (id(graph.node), id(graph.original_node)) else { return };
    if is_instantiating() {
        remember(Handled { node: graph.node, copy: Some((node, original)) });
    }
    report_copy(node, original);
}

/// Handles the update of a node of an executable graph from a node of another graph. CUPTI 13.0 calls the latter the node
/// and the former the original, contrary to copies, so the executable graph decides which is which.
fn updated(graph: &GraphData) {
    if !is_executed(graph.node_type) {
        return;
    }
    let (Some(one), Some(other)) = (id(graph.node), id(graph.original_node)) else { return };
    let get = library::cupti().and_then(|cupti| cupti.get_graph_exec_id);
    let first = graph_id(get, graph.exec).is_some_and(|exec| one >> 32 == u64::from(exec));
    let (node, from) = if first { (one, other) } else { (other, one) };
    report_copy(node, from);
}

fn report_copy(node: u64, original: u64) {
    let mut bytes = [0; wire::NodeCopied::SIZE];
    wire::NodeCopied { node, original, time: sys::now() }.encode(&mut bytes);
    report(&bytes);
}

/// Returns CUPTI's id of a graph or an executable graph.
fn graph_id(get: Option<GetGraphId>, handle: *mut c_void) -> Option<u32> {
    let mut graph = 0;
    // SAFETY: the handle is of the type that the function expects, and `graph` is writable.
    get.is_some_and(|get| !handle.is_null() && unsafe { get(handle, &mut graph) } == result::SUCCESS).then_some(graph)
}

fn destroyed(get: Option<GetGraphId>, handle: *mut c_void) {
    if let Some(graph) = graph_id(get, handle) {
        let mut bytes = [0; wire::GraphDestroyed::SIZE];
        wire::GraphDestroyed { graph }.encode(&mut bytes);
        report(&bytes);
    }
}

/// Returns CUPTI's id of a node.
fn id(node: *mut c_void) -> Option<u64> {
    let get = library::cupti()?.get_graph_node_id?;
    let mut id = 0;
    // SAFETY: the handle is that of a node, and `id` is writable.
    (!node.is_null() && unsafe { get(node, &mut id) } == result::SUCCESS).then_some(id)
}

fn report(message: &[u8]) {
    lifecycle::guarded((), || {
        if !QUEUE.append(message, 1) {
            add(&TOTALS.dropped_queue_full, 1);
        }
    });
}
