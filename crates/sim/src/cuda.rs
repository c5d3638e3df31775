//! The exports of the fake libcuda.

mod device;
mod graph;
mod launch;
pub(crate) mod memory;
mod module;
pub(crate) mod names;
mod process;
mod stream;
pub(crate) mod stub;

/// Any of the driver's handles.
type Handle = *mut std::ffi::c_void;
/// `CUdeviceptr`
type DevicePointer = usize;
