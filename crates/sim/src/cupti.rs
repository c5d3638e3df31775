//! The exports of the fake libcupti: a subscriber's callbacks, and activity records in the layout of a release.

mod activity;
mod buffer;
mod clock;
mod ids;
mod pc_sampling;
mod pm_sampling;
mod profiler;
mod profiler_host;
mod queue;
mod range_profiler;
mod record;
mod subscribe;

use std::ffi::{CStr, c_char};

use cupti::ids::result;

use crate::gpu::answer;
use crate::table::{Table, table};

/// Results beyond those in [`result`].
mod code {
    pub const INVALID_OPERATION: u32 = 7;
}

/// Returns the GPU's table, or an error in a process without the fake libcuda or in a child forked after `cuInit`.
fn gpu() -> Result<&'static Table, u32> {
    table().filter(|t| (t.alive)()).ok_or(result::NOT_INITIALIZED)
}

/// Converts an outcome to a `CUptiResult`.
fn code(outcome: Result<(), u32>) -> u32 {
    outcome.err().unwrap_or(result::SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetVersion(version: *mut u32) -> u32 {
    code(gpu().and_then(|gpu| answer(version, (gpu.script)().release.version)))
}

/// Texts of the fake's results.
const RESULTS: &[(u32, &CStr)] = &[
    (result::SUCCESS, c"CUPTI_SUCCESS"),
    (result::INVALID_PARAMETER, c"CUPTI_ERROR_INVALID_PARAMETER"),
    (code::INVALID_OPERATION, c"CUPTI_ERROR_INVALID_OPERATION"),
    (result::MAX_LIMIT_REACHED, c"CUPTI_ERROR_MAX_LIMIT_REACHED"),
    (result::NOT_INITIALIZED, c"CUPTI_ERROR_NOT_INITIALIZED"),
    (result::INVALID_KIND, c"CUPTI_ERROR_INVALID_KIND"),
    (result::NOT_SUPPORTED, c"CUPTI_ERROR_NOT_SUPPORTED"),
    (result::OUT_OF_MEMORY, c"CUPTI_ERROR_OUT_OF_MEMORY"),
    (result::HARDWARE_BUSY, c"CUPTI_ERROR_HARDWARE_BUSY"),
    (result::INSUFFICIENT_PRIVILEGES, c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
    (result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
];

#[unsafe(no_mangle)]
extern "C" fn cuptiGetResultString(number: u32, text: *mut *const c_char) -> u32 {
    match RESULTS.iter().find(|(n, _)| *n == number) {
        Some((_, name)) => code(answer(text, name.as_ptr())),
        None => result::INVALID_PARAMETER,
    }
}
