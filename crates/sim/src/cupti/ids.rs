//! Ids of handles, and finalisation.

use std::ffi::c_void;

use cupti::ids::result;

use super::{code, gpu};
use crate::gpu::answer;
use crate::table::Table;

fn id<T>(out: *mut T, found: impl FnOnce(&Table) -> Option<T>) -> u32 {
    code(gpu().and_then(|gpu| answer(out, found(gpu).ok_or(result::INVALID_PARAMETER)?)))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetGraphNodeId(node: *mut c_void, out: *mut u64) -> u32 {
    id(out, |gpu| (gpu.graph_node_id)(node))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetGraphId(graph: *mut c_void, out: *mut u32) -> u32 {
    id(out, |gpu| (gpu.graph_id)(graph))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetGraphExecId(exec: *mut c_void, out: *mut u32) -> u32 {
    id(out, |gpu| (gpu.graph_exec_id)(exec))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetContextId(context: *mut c_void, out: *mut u32) -> u32 {
    id(out, |gpu| (gpu.context_ids)(context).map(|(id, _)| id))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetDeviceId(context: *mut c_void, out: *mut u32) -> u32 {
    id(out, |gpu| (gpu.context_ids)(context).map(|(_, device)| device))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetStreamIdEx(context: *mut c_void, stream: *mut c_void, per_thread: u8, out: *mut u32) -> u32 {
    id(out, |gpu| (gpu.stream_id)(context, stream, per_thread != 0))
}
