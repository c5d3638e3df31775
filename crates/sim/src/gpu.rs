//! The simulated GPU itself: the state behind the fake libcuda.

pub mod call;
pub mod client;
pub mod context;
pub mod device;
pub mod event;
pub mod function;
pub mod graph;
pub mod init;
pub mod launch;
pub mod meeting;
pub mod memory;
pub mod operation;
pub mod timeline;

/// The outcome of a driver function: success or its error (`CUresult`).
pub type Outcome = Result<(), u32>;

/// Results of the driver API (`CUresult`); the runtime's numbers for these are the same.
pub mod status {
    #![allow(missing_docs)]
    pub const INVALID_VALUE: u32 = 1;
    pub const OUT_OF_MEMORY: u32 = 2;
    pub const NOT_INITIALIZED: u32 = 3;
    pub const DEINITIALIZED: u32 = 4;
    pub const NO_DEVICE: u32 = 100;
    pub const INVALID_DEVICE: u32 = 101;
    pub const INVALID_CONTEXT: u32 = 201;
    pub const INVALID_HANDLE: u32 = 400;
    pub const ILLEGAL_STATE: u32 = 401;
    pub const NOT_FOUND: u32 = 500;
    pub const NOT_READY: u32 = 600;
    pub const CAPTURE_UNSUPPORTED: u32 = 900;
    pub const GRAPH_EXEC_UPDATE_FAILURE: u32 = 910;
}

/// Writes a result to the program's pointer.
///
/// The program guarantees its pointers, as with the real library; only null is detected.
pub fn answer<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller of the CUDA API guarantees that it points to a `T`.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Returns the object of a handle that the program got from us.
///
/// # Safety
/// A handle that is not null must point to readable memory of a `T`'s size.
pub unsafe fn behind<'a, T>(handle: *mut std::ffi::c_void) -> Result<&'a T, u32> {
    // SAFETY: by the contract.
    unsafe { handle.cast::<T>().as_ref() }.ok_or(status::INVALID_HANDLE)
}
