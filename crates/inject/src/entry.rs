//! The entry points: the driver calls one inside `cuInit`, and warpscope the other in a process that already runs.

use core::sync::atomic::{AtomicBool, Ordering};

use wire::Refusal;

use crate::connect::{Refused, connect};
use crate::setup::Found;
use crate::start::{attach, start};
use crate::{driver, environment, lifecycle, sys, warpscope_launch_marker};

static CALLED: AtomicBool = AtomicBool::new(false);

/// Called by the driver inside the program's first `cuInit`. Always returns 1: CUDA continues even if the session does
/// not start.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> i32 {
    lifecycle::guarded((), || {
        if CALLED.swap(true, Ordering::SeqCst) {
            return;
        }
        silence_panics();
        if !lifecycle::claim() {
            return;
        }
        if let Err(Refused(refusal, error)) = begin() {
            lifecycle::release();
            // The probe on the marker sees the refusal; the process makes no system call for it.
            warpscope_launch_marker(error.cast_unsigned().into(), refusal.work(), 0, 0, 0, 0);
        }
    });
    1
}

/// Sets the hook of this library's own copy of the standard library, so that a caught panic is not printed.
fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// Called by warpscope in a process that already runs, on a thread of its own. The settings are as in the environment of a
/// command. Returns what [`wire::attached`] reads.
///
/// # Safety
/// `settings` must point to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpscope_attach(settings: *const u8, size: usize) -> u64 {
    lifecycle::guarded(wire::not_attached(Refusal::Thread, 0), || {
        silence_panics();
        if !lifecycle::claim() {
            return wire::not_attached(Refusal::Busy, 0);
        }
        // The driver, which may load this library later, finds a session, or none and no address.
        // SAFETY: the caller guarantees the bytes.
        environment::pass(unsafe { core::slice::from_raw_parts(settings, size) });
        match attach() {
            Ok(descriptor) => descriptor.cast_unsigned().into(),
            Err(Refused(refusal, error)) => {
                lifecycle::release();
                wire::not_attached(refusal, error.cast_unsigned())
            }
        }
    })
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
    start(socket, Found::search(driver), driver).map_or(Ok(()), Err)
}

/// The number of filters that warpscope itself runs under: it created its own socket under them.
fn allowed_filters() -> u32 {
    environment::variable(wire::FILTERS_VARIABLE).and_then(|text| text.parse().ok()).unwrap_or(0)
}
