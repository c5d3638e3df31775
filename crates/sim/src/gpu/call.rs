//! The steps of an API call: its correlation id, its callbacks, the script's faults.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};

use cupti::callback::CallbackData;
use cupti::ids::{domain, site};

use super::{Outcome, client, init, status};
use crate::script::{Fault, script};
use crate::sys;
use crate::table::Call;
use crate::truth::{self, TRUTH};

thread_local! {
    /// The id of the API call this thread is in, or 0.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// Returns the id of the API call this thread is in.
pub fn correlation() -> u32 {
    CURRENT.get()
}

fn notify(call: &mut Call, site: u32) {
    if call.cbid == 0 || !client::wants(call.domain, call.cbid) {
        return;
    }
    let (context, context_uid) = client::context();
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
    client::notify_call(call.domain, call.cbid, &data);
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

/// Ends a call whose result is set.
pub fn end(call: &mut Call) {
    notify(call, site::EXIT);
    CURRENT.set(call.outer);
    if call.outer == 0 && call.result != 0 && call.result != status::NOT_READY {
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
