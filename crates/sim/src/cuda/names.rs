//! The names of the callbacks of libcuda.

use std::ffi::CStr;

use super::{device, graph, launch, memory, module, process, stream};

/// Returns the name of a callback.
pub fn name(cbid: u32) -> Option<&'static CStr> {
    let all = [device::NAMES, graph::NAMES, launch::NAMES, memory::NAMES, module::NAMES, process::NAMES, stream::NAMES];
    all.into_iter().flatten().find(|(id, _)| *id == cbid).map(|(_, name)| *name)
}
