//! The CUPTI client of the process: what it has enabled, and its callbacks.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use cupti::callback::{CallbackData, ResourceData};
use cupti::ids::domain;

use crate::table::{Hooks, Switches};

/// What the CUPTI client has enabled.
pub static SWITCHES: Switches = Switches::new();

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Whether this thread is in a callback of the client: calls made there are not reported.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    /// The `CUcontext` that is current on this thread, and its id; null and 0 for none.
    static CONTEXT: Cell<(*mut c_void, u32)> = const { Cell::new((std::ptr::null_mut(), 0)) };
}

/// Installs libcupti's hooks; false if another libcupti has installed its own.
pub fn attach(hooks: &'static Hooks) -> bool {
    let new = std::ptr::from_ref(hooks).cast_mut();
    match HOOKS.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(present) => present == new,
    }
}

/// Returns libcupti's hooks, if installed.
#[inline]
pub fn hooks() -> Option<&'static Hooks> {
    // SAFETY: null, or a static of a library that is never unloaded.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// Returns the calling thread's context, which every callback contains: handle and id, or null and 0.
pub fn context() -> (*mut c_void, u32) {
    CONTEXT.get()
}

/// Sets the calling thread's context.
pub fn set_context(handle: *mut c_void, id: u32) {
    CONTEXT.set((handle, id));
}

/// Whether the client gets a callback for this call on this thread.
pub fn wants(domain: u32, cbid: u32) -> bool {
    SWITCHES.callback(domain, cbid) && !IN_CALLBACK.get()
}

/// Reports the entry or the exit of a call.
pub fn notify_call(domain: u32, cbid: u32, data: &CallbackData) {
    let Some(hooks) = hooks() else { return };
    IN_CALLBACK.set(true);
    (hooks.api)(domain, cbid, data);
    IN_CALLBACK.set(false);
}

/// Reports the cubin of a module that is being loaded.
pub fn notify_module(cubin: &[u8]) {
    if let Some(hooks) = hooks() {
        (hooks.module)(cubin);
    }
}

/// Reports a resource event to the client, if enabled.
pub fn notify_resource(cbid: u32, data: &ResourceData) {
    if !wants(domain::RESOURCE, cbid) {
        return;
    }
    let Some(hooks) = hooks() else { return };
    IN_CALLBACK.set(true);
    (hooks.resource)(cbid, data);
    IN_CALLBACK.set(false);
}
