//! `cuInit`: initialises the GPU, loads the injected library, and registers the exit handler.

use std::cell::Cell;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use cupti::types::InitializeInjection;

use super::{Outcome, device, status};
use crate::script::script;
use crate::sys;
use crate::truth::TRUTH;

/// Before `cuInit`.
const DOWN: u32 = 0;
/// Usable.
const UP: u32 = 1;
/// In a child forked after `cuInit`: as with the real driver, CUDA is unusable there.
const FORKED: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(DOWN);

/// Every entry stub of libcuda compares this with [`CLOSED`]; equal once the process is exiting.
pub static GATE: AtomicU32 = AtomicU32::new(0);
/// The number that the real driver's stubs compare with.
pub const CLOSED: u32 = 0x321c_ba00;

thread_local! {
    static INITIALISING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the driver can be used.
#[inline]
pub fn ready() -> Outcome {
    match STATE.load(Ordering::Relaxed) {
        UP => Ok(()),
        _ => Err(status::NOT_INITIALIZED),
    }
}

/// False in a child forked after `cuInit`.
pub fn alive() -> bool {
    STATE.load(Ordering::Relaxed) != FORKED
}

extern "C" fn forked() {
    STATE.store(FORKED, Ordering::Relaxed);
}

extern "C" fn at_exit() {
    if !alive() {
        return;
    }
    GATE.store(CLOSED, Ordering::Relaxed);
    if let Some(path) = &script().truth {
        TRUTH.append(path, script().correlation);
    }
}

/// Initialises the GPU on the first call. Other threads wait for it; the injected library may call it again meanwhile.
pub fn init() -> Outcome {
    static ONCE: Once = Once::new();
    if !alive() {
        return Err(status::NOT_INITIALIZED);
    }
    if INITIALISING.get() {
        return Ok(());
    }
    ONCE.call_once(|| {
        script();
        device::create();
        if device::count() == 0 {
            return;
        }
        INITIALISING.set(true);
        // SAFETY: both handlers are plain functions of a library that is never unloaded. The exit handler is registered
        // first: handlers run in reverse order, so those of the injected library run before it.
        unsafe {
            libc::atexit(at_exit);
            libc::pthread_atfork(None, None, Some(forked));
        }
        STATE.store(UP, Ordering::Release);
        load_injection();
        INITIALISING.set(false);
    });
    if device::count() == 0 { Err(status::NO_DEVICE) } else { Ok(()) }
}

/// Loads the library named by `CUDA_INJECTION64_PATH`. Silent on failure, like the driver.
fn load_injection() {
    let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH").filter(|p| !p.is_empty()) else { return };
    let Ok(path) = CString::new(path.into_vec()) else { return };
    let library = sys::open(&path);
    if library.is_null() {
        return;
    }
    let entry = sys::symbol(library, c"InitializeInjection");
    if entry.is_null() {
        return;
    }
    // SAFETY: the injection interface defines the type of this symbol.
    let entry: InitializeInjection = unsafe { std::mem::transmute(entry) };
    // SAFETY: as above; called once, from cuInit.
    unsafe { entry() };
}
