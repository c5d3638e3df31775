//! The steps of an API call: its correlation id, its callbacks, the script's faults.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use cupti::callback::{CallbackData, ResourceData};
use cupti::ids::{domain, site};

use super::{Outcome, context, init, status};
use crate::script::{Fault, script};
use crate::sys;
use crate::table::{Call, Hooks, Switches};
use crate::truth::{self, TRUTH};

/// What the CUPTI client has enabled.
pub static SWITCHES: Switches = Switches::new();

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The id of the API call this thread is in, or 0.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
    /// Whether this thread is in a callback of the client: calls made there are not reported.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
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

/// Returns the id of the API call this thread is in.
pub fn correlation() -> u32 {
    CURRENT.get()
}

fn notify(call: &mut Call, site: u32) {
    if call.cbid == 0 || !SWITCHES.callback(call.domain, call.cbid) || IN_CALLBACK.get() {
        return;
    }
    let Some(hooks) = hooks() else { return };
    let (context, context_uid) = context::current_handle();
    let data = CallbackData {
        site,
        function_name: call.name,
        params: call.params,
        return_value: &call.result,
        symbol_name: call.symbol,
        context,
        context_uid,
        correlation_data: &mut call.data,
        correlation_id: call.correlation,
    };
    IN_CALLBACK.set(true);
    (hooks.api)(call.domain, call.cbid, &data);
    IN_CALLBACK.set(false);
}

/// Reports a resource event to the client, if enabled.
pub fn notify_resource(cbid: u32, data: &ResourceData) {
    if !SWITCHES.callback(domain::RESOURCE, cbid) || IN_CALLBACK.get() {
        return;
    }
    let Some(hooks) = hooks() else { return };
    IN_CALLBACK.set(true);
    (hooks.resource)(cbid, data);
    IN_CALLBACK.set(false);
}

/// Begins a call. Sets a result and returns false if the script makes it fail.
pub fn begin(call: &mut Call) -> bool {
    call.outer = CURRENT.get();
    call.correlation = match call.outer {
        0 => truth::correlation(script().correlation, TRUTH.correlations.add(1)),
        outer => outer,
    };
    CURRENT.set(call.correlation);
    notify(call, site::ENTER);
    script().faults.is_empty() || apply_faults(call)
}

#[cold]
fn apply_faults(call: &mut Call) -> bool {
    // SAFETY: names are C string literals.
    let name = unsafe { CStr::from_ptr(call.name) }.to_str().unwrap_or_default();
    let base = name.trim_end_matches("_ptsz").trim_end_matches("_ptds").trim_end_matches("_v2");
    for (function, fault) in &script().faults {
        if function != name && function != base {
            continue;
        }
        match fault {
            Fault::Slow(time) => sys::wait_until(sys::now() + time),
            Fault::Fail(every) if every.occurs() => {
                call.result = if name.contains("lloc") { status::OUT_OF_MEMORY } else { status::INVALID_VALUE };
                return false;
            }
            Fault::Fail(_) => {}
        }
    }
    true
}

/// The callback ids of `cudaGetLastError` and `cudaPeekAtLastError`, whose results are errors of other calls.
pub const LAST_ERROR: u32 = 10;
/// As above.
pub const PEEK_AT_ERROR: u32 = 11;

/// Ends a call whose result is set.
pub fn end(call: &mut Call) {
    notify(call, site::EXIT);
    CURRENT.set(call.outer);
    let own = call.domain != domain::RUNTIME || !matches!(call.cbid, LAST_ERROR | PEEK_AT_ERROR);
    if own && call.outer == 0 && call.result != 0 && call.result != status::NOT_READY {
        TRUTH.failed.add(1);
    }
}

/// Runs a driver function's body as an API call.
#[inline(always)]
pub fn driver(
    cbid: u32,
    name: &'static CStr,
    params: *const c_void,
    symbol: *const c_char,
    body: impl FnOnce() -> Outcome,
) -> u32 {
    if let Err(error) = init::ready() {
        return error;
    }
    let name = name.as_ptr();
    let mut call =
        Call { domain: domain::DRIVER, cbid, name, params, symbol, result: 0, correlation: 0, outer: 0, data: 0 };
    if begin(&mut call) {
        call.result = body().err().unwrap_or(0);
    }
    end(&mut call);
    call.result
}
