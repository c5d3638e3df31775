//! The exports of the fake libcuda.

mod device;
mod graph;
mod launch;
pub(crate) mod memory;
mod module;
mod process;
mod stream;

/// Any of the driver's handles.
type Handle = *mut std::ffi::c_void;
/// `CUdeviceptr`
type DevicePointer = usize;

/// The names of the callbacks, by id.
pub(crate) fn names() -> impl Iterator<Item = &'static (u32, &'static std::ffi::CStr)> {
    [device::NAMES, graph::NAMES, launch::NAMES, memory::NAMES, module::NAMES, process::NAMES, stream::NAMES]
        .into_iter()
        .flatten()
}
