//! Where the driver comes in.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CString;

use crate::start::{Found, start};
use crate::{connect, driver, library, lifecycle};

static CALLED: AtomicBool = AtomicBool::new(false);

/// Called by the driver inside the program's first `cuInit`. Always answers 1: whatever happens to us, CUDA goes on.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> i32 {
    lifecycle::guarded((), || {
        let Some(socket) = bytes(wire::SOCKET_VARIABLE) else { return };
        if CALLED.swap(true, Ordering::SeqCst) {
            return;
        }
        // The hook of our own copy of the standard library: a caught panic is not to be printed either.
        std::panic::set_hook(Box::new(|_| {}));
        let Some(socket) = connect(&socket) else { return };
        let driver = driver::version();
        let found = match library::find(driver) {
            Ok((cupti, path)) => Found::Library(cupti, path),
            Err(tried) => Found::Nothing(tried),
        };
        start(socket, found, driver);
    });
    1
}

/// An environment variable that is text.
pub fn variable(name: &str) -> Option<String> {
    String::from_utf8(bytes(name)?).ok()
}

/// An environment variable, but not in a program that runs with more rights than its caller.
fn bytes(name: &str) -> Option<Vec<u8>> {
    let name = CString::new(name).ok()?;
    // SAFETY: asks only for a number the kernel gave the process at its start.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
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
