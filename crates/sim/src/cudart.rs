//! The exports of the fake libcudart: each makes the same driver calls as the real one.

pub mod call;
mod device;
mod driver;
mod error;
mod graph;
mod launch;
mod memory;
pub(crate) mod names;
mod register;
mod stream;
pub(crate) mod stub;

/// Any of the runtime's handles.
type Handle = *mut std::ffi::c_void;

/// `dim3`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}
