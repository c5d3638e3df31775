//! The names of the callbacks of libcudart.

use std::ffi::CStr;

use super::{device, error, graph, launch, memory, stream};

/// Returns the name of a callback.
pub fn name(cbid: u32) -> Option<&'static CStr> {
    let all = [device::NAMES, error::NAMES, graph::NAMES, launch::NAMES, memory::NAMES, stream::NAMES];
    all.into_iter().flatten().find(|(id, _)| *id == cbid).map(|(_, name)| *name)
}
