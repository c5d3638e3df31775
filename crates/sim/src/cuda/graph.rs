//! Stream capture and graphs.

use std::ffi::{c_char, c_void};

use super::Handle;
use super::stub::driver;
use crate::gpu::context::{Stream, per_thread};
use crate::gpu::function::Function;
use crate::gpu::graph::{self, Graph};
use crate::gpu::operation::Operation;
use crate::gpu::{Outcome, answer, launch, status};

fn end_capture(stream: Handle, out: *mut Handle) -> Outcome {
    let captured = Stream::from_handle(stream)?.end_capture()?;
    answer(out, Box::into_raw(captured).cast())
}

fn is_capturing(stream: Handle, out: *mut u32) -> Outcome {
    answer(out, u32::from(Stream::from_handle(stream)?.capturing()))
}

fn instantiate(out: *mut Handle, graph: Handle) -> Outcome {
    if out.is_null() { Err(status::INVALID_VALUE) } else { answer(out, graph::from_handle(graph)?.instantiate()) }
}

fn add_child(out: *mut Handle, graph: Handle, child: Handle) -> Outcome {
    if graph == child {
        return Err(status::INVALID_VALUE);
    }
    let child = graph::from_handle(child)?;
    answer(out, graph::from_handle(graph)?.add_child(child))
}

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
struct UpdateResult {
    result: u32,
    error_node: Handle,
    error_from_node: Handle,
}

fn update(exec: Handle, graph: Handle, out: *mut UpdateResult) -> Outcome {
    let outcome = graph::exec_to_update(exec)?.update(graph::from_handle(graph)?);
    let null = std::ptr::null_mut();
    // CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
    let result = if outcome.is_ok() { 0 } else { 2 };
    answer(out, UpdateResult { result, error_node: null, error_from_node: null })?;
    outcome
}

fn launch(exec: Handle, stream: Handle) -> Outcome {
    let stream = Stream::from_handle(stream)?;
    if stream.capturing() {
        return Err(status::CAPTURE_UNSUPPORTED);
    }
    launch::launch_graph(graph::exec_from_handle(exec)?, stream);
    Ok(())
}

/// `CUDA_KERNEL_NODE_PARAMS`, and the start of its second version.
#[repr(C)]
struct KernelNode {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    args: *mut *mut c_void,
    extra: *mut *mut c_void,
}

fn add_kernel(out: *mut Handle, graph: Handle, params: *const KernelNode) -> Outcome {
    // SAFETY: the program passes parameters, or null.
    let p = unsafe { params.as_ref() }.ok_or(status::INVALID_VALUE)?;
    let function = Function::from_handle(p.function)?;
    let operation = Operation::Kernel { function, grid: p.grid, block: p.block, shared: p.shared, cooperative: false };
    answer(out, graph::from_handle(graph)?.add(operation))
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[repr(C)]
struct MemsetNode {
    dst: usize,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

fn add_memset(out: *mut Handle, graph: Handle, params: *const MemsetNode) -> Outcome {
    // SAFETY: the program passes parameters, or null.
    let p = unsafe { params.as_ref() }.ok_or(status::INVALID_VALUE)?;
    let operation = Operation::memset(p.dst, p.value, p.element as usize, p.width * p.height.max(1))?;
    answer(out, graph::from_handle(graph)?.add(operation))
}

fn nodes(graph: Handle, out: *mut Handle, count: *mut usize) -> Outcome {
    let graph = graph::from_handle(graph)?;
    if out.is_null() {
        return answer(count, graph.len());
    }
    // SAFETY: the program passes where to find the room it has.
    let room = unsafe { count.as_ref() }.copied().ok_or(status::INVALID_VALUE)?;
    let given = graph.handles().take(room).enumerate();
    let mut total = 0;
    for (at, node) in given {
        // SAFETY: `at` is below the room the program has.
        unsafe { out.add(at).write(node) };
        total = at + 1;
    }
    answer(count, total)
}

driver! {
    539 cuStreamBeginCapture_v2(stream: Handle, _mode: u32) => Stream::from_handle(stream)?.begin_capture();
    540 cuStreamBeginCapture_v2_ptsz(stream: Handle, _mode: u32) => {
        Stream::from_handle(per_thread(stream))?.begin_capture()
    };
    497 cuStreamEndCapture(stream: Handle, out: *mut Handle) => end_capture(stream, out);
    498 cuStreamEndCapture_ptsz(stream: Handle, out: *mut Handle) => end_capture(per_thread(stream), out);
    914 cuStreamIsCapturing(stream: Handle, out: *mut u32) => is_capturing(stream, out);
    915 cuGraphCreate(out: *mut Handle, _flags: u32) => answer(out, Box::into_raw(Graph::new()).cast());
    916 cuGraphAddKernelNode(
        out: *mut Handle, graph: Handle, _dependencies: *const Handle, _count: usize, params: *const KernelNode
    ) => add_kernel(out, graph, params);
    917 cuGraphAddKernelNode_v2(
        out: *mut Handle, graph: Handle, _dependencies: *const Handle, _count: usize, params: *const KernelNode
    ) => add_kernel(out, graph, params);
    918 cuGraphAddMemsetNode(
        out: *mut Handle, graph: Handle, _dependencies: *const Handle, _count: usize, params: *const MemsetNode,
        _context: Handle
    ) => add_memset(out, graph, params);
    919 cuGraphGetNodes(graph: Handle, out: *mut Handle, count: *mut usize) => nodes(graph, out, count);
    513 cuGraphInstantiate(
        out: *mut Handle, graph: Handle, _error: *mut Handle, _log: *mut c_char, _size: usize
    ) => instantiate(out, graph);
    578 cuGraphInstantiate_v2(
        out: *mut Handle, graph: Handle, _error: *mut Handle, _log: *mut c_char, _size: usize
    ) => instantiate(out, graph);
    643 cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, _flags: u64) => instantiate(out, graph);
    656 cuGraphInstantiateWithParams(out: *mut Handle, graph: Handle, _params: *mut c_void) => instantiate(out, graph);
    514 cuGraphLaunch(exec: Handle, stream: Handle) => launch(exec, stream);
    515 cuGraphLaunch_ptsz(exec: Handle, stream: Handle) => launch(exec, per_thread(stream));
    958 cuGraphAddChildGraphNode(
        out: *mut Handle, graph: Handle, _dependencies: *const Handle, _count: usize, child: Handle
    ) => add_child(out, graph, child);
    959 cuGraphExecUpdate_v2(exec: Handle, graph: Handle, out: *mut UpdateResult) => update(exec, graph, out);
    920 cuGraphDestroy(graph: Handle) => graph::destroy(graph, false);
    921 cuGraphExecDestroy(exec: Handle) => graph::destroy(exec, true);
}
