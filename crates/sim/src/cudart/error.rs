//! The names of the runtime's errors.

use std::ffi::{CStr, c_char};

use super::call::{last_error, reported};
use super::stub::runtime_stub;
use crate::gpu::call::{LAST_ERROR, PEEK_AT_ERROR};

/// Number, name and description of the simulated runtime's results.
const ERRORS: &[(u32, &CStr, &CStr)] = &[
    (0, c"cudaSuccess", c"no error"),
    (1, c"cudaErrorInvalidValue", c"invalid argument"),
    (2, c"cudaErrorMemoryAllocation", c"out of memory"),
    (3, c"cudaErrorInitializationError", c"initialization error"),
    (4, c"cudaErrorCudartUnloading", c"driver shutting down"),
    (35, c"cudaErrorInsufficientDriver", c"CUDA driver version is insufficient for CUDA runtime version"),
    (98, c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
    (100, c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
    (101, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (201, c"cudaErrorDeviceUninitialized", c"invalid device context"),
    (400, c"cudaErrorInvalidResourceHandle", c"invalid resource handle"),
    (401, c"cudaErrorIllegalState", c"the operation cannot be performed in the present state"),
    (500, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (600, c"cudaErrorNotReady", c"device not ready"),
    (900, c"cudaErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing"),
];

fn find(error: u32) -> (&'static CStr, &'static CStr) {
    let found = ERRORS.iter().find(|(number, ..)| *number == error);
    found.map_or((c"unrecognized error code", c"unrecognized error code"), |&(_, name, text)| (name, text))
}

const _: () = {
    extern "C" fn body(error: u32) -> *const c_char {
        find(error).0.as_ptr()
    }
    runtime_stub!(cudaGetErrorName, body);
};

const _: () = {
    extern "C" fn body(error: u32) -> *const c_char {
        find(error).1.as_ptr()
    }
    runtime_stub!(cudaGetErrorString, body);
};

/// The names of the callbacks.
pub(super) const NAMES: &[(u32, &CStr)] =
    &[(LAST_ERROR, c"cudaGetLastError_v3020"), (PEEK_AT_ERROR, c"cudaPeekAtLastError_v3020")];

const _: () = {
    extern "C" fn body() -> u32 {
        reported(LAST_ERROR, c"cudaGetLastError", || last_error(true))
    }
    runtime_stub!(cudaGetLastError, body);
};

const _: () = {
    extern "C" fn body() -> u32 {
        reported(PEEK_AT_ERROR, c"cudaPeekAtLastError", || last_error(false))
    }
    runtime_stub!(cudaPeekAtLastError, body);
};
