//! The entry point that the driver calls.

use core::sync::atomic::{AtomicBool, Ordering};

use wire::Refusal;

use crate::connect::{Refused, connect};
use crate::start::{Found, start};
use crate::{driver, environment, library, lifecycle, sys, warpscope_launch_marker};

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
            warpscope_launch_marker(error.cast_unsigned(), refusal.work(), 0, 0, 0);
        }
    });
    1
}

fn begin() -> Result<(), Refused> {
    if environment::is_secure() {
        return Err(Refused(Refusal::Secure, 0));
    }
    let address = environment::bytes(wire::SOCKET_VARIABLE).ok_or(Refused(Refusal::NoAddress, 0))?;
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
    environment::variable(wire::FILTERS_VARIABLE).and_then(|text| text.parse().ok()).unwrap_or(0)
}
