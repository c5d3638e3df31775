//! The entry point that the driver calls.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CString;

use wire::Refusal;

use crate::connect::{Refused, connect};
use crate::start::{Found, start};
use crate::{driver, library, lifecycle, sys, warpscope_launch_marker};

static CALLED: AtomicBool = AtomicBool::new(false);

/// Called by the driver inside the program's first `cuInit`. Always returns 1: CUDA continues even if the session does
/// not start.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> i32 {
    lifecycle::guarded((), || {
        if CALLED.swap(true, Ordering::SeqCst) {
            return;
        }
        // Sets the hook of this library's own copy of the standard library, so that a caught panic is not printed.
        std::panic::set_hook(Box::new(|_| {}));
        if let Err(Refused(refusal, error)) = begin() {
            // The probe on the marker sees the refusal; the process makes no system call for it.
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
    // Checked before any call that a filter may reject: so far the process has only loaded a library.
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

/// The number of filters that warpscope itself runs under: it created its own socket under them.
fn allowed_filters() -> u32 {
    variable(wire::FILTERS_VARIABLE).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether the program runs with more privileges than its caller.
fn secure() -> bool {
    // SAFETY: only reads a number that the kernel passed at the start of the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns an environment variable that is valid text.
pub fn variable(name: &str) -> Option<String> {
    String::from_utf8(bytes(name)?).ok()
}

/// Returns an environment variable, but never in a program that runs with more privileges than its caller.
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
