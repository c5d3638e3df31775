//! Stream capture and graphs.

use std::ffi::{c_char, c_void};

use super::call::{check, ready};
use super::register::function_of;
use super::stub::runtime;
use super::{Dim3, Handle};
use crate::gpu::context::per_thread;
use crate::gpu::status;

/// `cudaKernelNodeParams`
#[repr(C)]
struct KernelNode {
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    shared: u32,
    args: *mut Handle,
    extra: *mut Handle,
}

fn add_kernel(
    out: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
    params: *const KernelNode,
) -> Result<(), u32> {
    let driver = ready()?;
    // SAFETY: the program passes parameters, or null.
    let p = unsafe { params.as_ref() }.ok_or(status::INVALID_VALUE)?;
    let host = function_of(driver, p.host)?.cast_const();
    // The driver's structure is the same except for the function.
    let node = KernelNode { host, grid: p.grid, block: p.block, shared: p.shared, args: p.args, extra: p.extra };
    check((driver.cuGraphAddKernelNode)(out, graph, dependencies, count, (&raw const node).cast()))
}

fn instantiate(out: *mut Handle, graph: Handle, flags: u64) -> Result<(), u32> {
    check((ready()?.cuGraphInstantiateWithFlags)(out, graph, flags))
}

runtime! {
    315 cudaStreamBeginCapture(stream: Handle, mode: u32) => check((ready()?.cuStreamBeginCapture_v2)(stream, mode));
    316 cudaStreamBeginCapture_ptsz(stream: Handle, mode: u32) => {
        check((ready()?.cuStreamBeginCapture_v2)(per_thread(stream), mode))
    };
    319 cudaStreamEndCapture(stream: Handle, out: *mut Handle) => check((ready()?.cuStreamEndCapture)(stream, out));
    320 cudaStreamEndCapture_ptsz(stream: Handle, out: *mut Handle) => {
        check((ready()?.cuStreamEndCapture)(per_thread(stream), out))
    };
    905 cudaStreamIsCapturing(stream: Handle, out: *mut u32) => check((ready()?.cuStreamIsCapturing)(stream, out));
    906 cudaGraphCreate(out: *mut Handle, flags: u32) => check((ready()?.cuGraphCreate)(out, flags));
    907 cudaGraphAddKernelNode(
        out: *mut Handle, graph: Handle, dependencies: *const Handle, count: usize, params: *const KernelNode
    ) => add_kernel(out, graph, dependencies, count, params);
    916 cudaGraphAddChildGraphNode(
        out: *mut Handle, graph: Handle, dependencies: *const Handle, count: usize, child: Handle
    ) => check((ready()?.cuGraphAddChildGraphNode)(out, graph, dependencies, count, child));
    917 cudaGraphExecUpdate(exec: Handle, graph: Handle, out: *mut c_void) => {
        check((ready()?.cuGraphExecUpdate_v2)(exec, graph, out))
    };
    908 cudaGraphGetNodes(graph: Handle, out: *mut Handle, count: *mut usize) => {
        check((ready()?.cuGraphGetNodes)(graph, out, count))
    };
    443 cudaGraphInstantiate(out: *mut Handle, graph: Handle, flags: u64) => instantiate(out, graph, flags);
    418 cudaGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64) => instantiate(out, graph, flags);
    310 cudaGraphInstantiate_v10000(
        out: *mut Handle, graph: Handle, _error: *mut Handle, _log: *mut c_char, _size: usize
    ) => instantiate(out, graph, 0);
    311 cudaGraphLaunch(exec: Handle, stream: Handle) => check((ready()?.cuGraphLaunch)(exec, stream));
    312 cudaGraphLaunch_ptsz(exec: Handle, stream: Handle) => check((ready()?.cuGraphLaunch)(exec, per_thread(stream)));
    909 cudaGraphDestroy(graph: Handle) => check((ready()?.cuGraphDestroy)(graph));
    910 cudaGraphExecDestroy(exec: Handle) => check((ready()?.cuGraphExecDestroy)(exec));
}
