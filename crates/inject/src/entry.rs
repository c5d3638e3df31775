//! Where the driver comes in.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CString;

use wire::Refusal;

use crate::connect::{Refused, connect};
use crate::start::{Found, start};
use crate::{driver, library, lifecycle, sys, warpscope_launch_marker};

static CALLED: AtomicBool = AtomicBool::new(false);

/// Called by the driver inside the program's first `cuInit`. Always answers 1: whatever happens to us, CUDA goes on.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> i32 {
    lifecycle::guarded((), || {
        if CALLED.swap(true, Ordering::SeqCst) {
            return;
        }
        // The hook of our own copy of the standard library: a caught panic is not to be printed either.
        std::panic::set_hook(Box::new(|_| {}));
        if let Err(Refused(refusal, error)) = begin() {
            // The probe on the marker sees this; the process makes no system call for it.
            warpscope_launch_marker(error.cast_unsigned(), refusal.work(), 0, 0);
        }
    });
    1
}

fn begin() -> Result<(), Refused> {
    if secure() {
        return Err(Refused(Refusal::Secure, 0));
    }
    let address = bytes(wire::SOCKET_VARIABLE).ok_or(Refused(Refusal::NoAddress, 0))?;
    // Before anything that a filter may not know: up to here the process has done no more than load a library.
    if sys::seccomp_filters().is_none_or(|filters| filters > allowed_filters()) {
        return Err(Refused(Refusal::Seccomp, 0));
    }
    let socket = connect(&address)?;
    let driver = driver::version();
    let found = match library::find(driver) {
        Ok((cupti, path)) => Found::Library(cupti, path),
        Err(tried) => Found::Nothing(tried),
    };
    start(socket, found, driver).map_or(Ok(()), Err)
}

/// The filters that warpscope runs under as well: it made its own socket under them.
fn allowed_filters() -> u32 {
    variable(wire::FILTERS_VARIABLE).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether the program runs with more rights than its caller.
fn secure() -> bool {
    // SAFETY: asks only for a number the kernel gave the process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// An environment variable that is text.
pub fn variable(name: &str) -> Option<String> {
    String::from_utf8(bytes(name)?).ok()
}

/// An environment variable, but not in a program that runs with more rights than its caller.
fn bytes(name: &str) -> Option<Vec<u8>> {
    let name = CString::new(name).ok()?;
    if secure() {
        return None;
    }
    // SAFETY: the name ends in 0.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the environment's strings end in 0; it is copied at once.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
}
