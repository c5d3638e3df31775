//! The functions that other clients call instead of libcupti's. Each makes the original call, as soon as this library has
//! stepped aside, and notes what the client has set up.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use cupti::ids::{domain, result};
use cupti::types::{
    ActivityFlushAll, ActivityRegisterCallbacks, ActivityRegisterTimestampCallback, ActivitySwitch, BufferCompletedFn,
    BufferRequestedFn, CallbackFn, CuptiResult, EnableAllDomains, EnableCallback, EnableDomain, Finalize, Subscribe,
    SubscribeV2, Subscriber, SubscriberParams, TimestampFn, Unsubscribe,
};

use super::arrival::arrive;
use super::other::{self, Arrival, Subscription};
use super::redirect::Function;
use super::standing::{OCCUPIED, is_recording};
use crate::library::{self, Cupti};
use crate::lifecycle::guarded;
use crate::{buffers, kinds};

/// Returned if the library is used without CUPTI, which cannot happen: a call is redirected only once CUPTI is known.
const NOT_INITIALIZED: CuptiResult = result::NOT_INITIALIZED;

/// Lists the wrapped functions.
pub fn functions(cupti: &Cupti) -> Vec<Function> {
    let functions = [
        (c"cuptiSubscribe", cupti.subscribe as usize, subscribe as Subscribe as usize),
        (c"cuptiSubscribe_v2", cupti.subscribe_v2.map_or(0, |f| f as usize), subscribe_v2 as SubscribeV2 as usize),
        (c"cuptiUnsubscribe", cupti.unsubscribe as usize, unsubscribe as Unsubscribe as usize),
        (c"cuptiFinalize", cupti.finalize.map_or(0, |f| f as usize), finalize as Finalize as usize),
        (c"cuptiEnableCallback", cupti.enable_callback as usize, enable_callback as EnableCallback as usize),
        (c"cuptiEnableDomain", cupti.enable_domain.map_or(0, |f| f as usize), enable_domain as EnableDomain as usize),
        (
            c"cuptiEnableAllDomains",
            cupti.enable_all_domains.map_or(0, |f| f as usize),
            enable_all_domains as EnableAllDomains as usize,
        ),
        (
            c"cuptiActivityRegisterCallbacks",
            cupti.register_callbacks as usize,
            register_callbacks as ActivityRegisterCallbacks as usize,
        ),
        (
            c"cuptiActivityRegisterTimestampCallback",
            cupti.register_timestamp.map_or(0, |f| f as usize),
            register_timestamp as ActivityRegisterTimestampCallback as usize,
        ),
        (c"cuptiActivityEnable", cupti.enable as usize, enable as ActivitySwitch as usize),
        (c"cuptiActivityDisable", cupti.disable as usize, disable as ActivitySwitch as usize),
        (c"cuptiActivityFlushAll", cupti.flush_all as usize, flush_all as ActivityFlushAll as usize),
    ];
    let functions = functions.into_iter().filter(|(_, real, _)| *real != 0);
    functions.map(|(name, real, wrapper)| Function { name, real, wrapper }).collect()
}

/// The client, which this is a function of, is about to use CUPTI.
fn arrive_as(function: usize) -> Option<Arrival> {
    guarded((), || other::set_name_by(function));
    arrive()
}

/// The client has subscribed, if CUPTI permitted it.
fn after_subscribing(outcome: CuptiResult, handle: *mut Subscriber, callback: CallbackFn, data: *mut c_void) {
    guarded((), || {
        if let Some(mut known) = other::lock().filter(|_| outcome == result::SUCCESS) {
            // SAFETY: CUPTI has just written the handle.
            let handle = unsafe { *handle } as usize;
            known.subscribed(Subscription { handle, present: handle, callback, data: data as usize });
        }
    });
}

unsafe extern "C" fn subscribe(handle: *mut Subscriber, callback: CallbackFn, data: *mut c_void) -> CuptiResult {
    let Some(cupti) = library::cupti() else { return NOT_INITIALIZED };
    let _arrival = arrive_as(callback as usize);
    // SAFETY: the client's own arguments.
    let outcome = unsafe { (cupti.subscribe)(handle, callback, data) };
    after_subscribing(outcome, handle, callback, data);
    outcome
}

unsafe extern "C" fn subscribe_v2(
    handle: *mut Subscriber,
    callback: CallbackFn,
    data: *mut c_void,
    params: *mut SubscriberParams,
) -> CuptiResult {
    let Some(real) = library::cupti().and_then(|cupti| cupti.subscribe_v2) else { return NOT_INITIALIZED };
    let _arrival = arrive_as(callback as usize);
    // SAFETY: the client's own arguments.
    let outcome = unsafe { real(handle, callback, data, params) };
    after_subscribing(outcome, handle, callback, data);
    outcome
}

unsafe extern "C" fn unsubscribe(handle: Subscriber) -> CuptiResult {
    let Some(cupti) = library::cupti() else { return NOT_INITIALIZED };
    let (present, borrowed) = guarded((handle, false), || {
        let Some(mut known) = other::lock() else { return (handle, false) };
        let present = known.present(handle);
        let borrowed = known.borrowed && known.subscription.is_some_and(|of| of.handle == handle as usize);
        if borrowed {
            known.unsubscribed();
        }
        (present, borrowed)
    });
    if borrowed {
        // Ours has replaced it: there is nothing left to end.
        return result::SUCCESS;
    }
    // SAFETY: the client's own argument, or CUPTI's handle for it.
    let outcome = unsafe { (cupti.unsubscribe)(present) };
    if outcome == result::SUCCESS {
        guarded((), left);
    }
    outcome
}

/// The client has left.
fn left() {
    if let Some(mut known) = other::lock() {
        known.unsubscribed();
        OCCUPIED.store(false, Ordering::SeqCst);
    }
}

unsafe extern "C" fn finalize() -> CuptiResult {
    let Some(real) = library::cupti().and_then(|cupti| cupti.finalize) else { return NOT_INITIALIZED };
    // It would also end our subscription.
    let _arrival = arrive();
    // SAFETY: no arguments.
    let outcome = unsafe { real() };
    guarded((), || {
        left();
        other::set_buffer_functions(None);
    });
    outcome
}

/// Returns CUPTI's handle for the client's.
fn present(handle: Subscriber) -> Subscriber {
    guarded(handle, || other::lock().map_or(handle, |known| known.present(handle)))
}

unsafe extern "C" fn enable_callback(on: u32, handle: Subscriber, of: u32, cbid: u32) -> CuptiResult {
    let Some(cupti) = library::cupti() else { return NOT_INITIALIZED };
    let _arrival = arrive();
    // SAFETY: the client's own arguments, with CUPTI's handle.
    let outcome = unsafe { (cupti.enable_callback)(on, present(handle), of, cbid) };
    guarded((), || {
        let Some(mut known) = other::lock().filter(|_| outcome == result::SUCCESS) else { return };
        match (of, on) {
            (domain::RESOURCE, 0) if cbid < 64 => known.resources &= !(1 << cbid),
            (domain::RESOURCE, _) if cbid < 64 => known.resources |= 1 << cbid,
            (_, 0) => {}
            _ => known.others = true,
        }
    });
    outcome
}

/// Notes that the client has enabled or disabled whole domains.
fn domains_switched(on: u32, all: bool, outcome: CuptiResult) {
    guarded((), || {
        if let Some(mut known) = other::lock().filter(|_| outcome == result::SUCCESS) {
            // Disabling one domain says nothing about the others.
            known.others = on != 0 || (known.others && !all);
        }
    });
}

unsafe extern "C" fn enable_domain(on: u32, handle: Subscriber, of: u32) -> CuptiResult {
    let Some(real) = library::cupti().and_then(|cupti| cupti.enable_domain) else { return NOT_INITIALIZED };
    let _arrival = arrive();
    // SAFETY: the client's own arguments, with CUPTI's handle.
    let outcome = unsafe { real(on, present(handle), of) };
    domains_switched(on, false, outcome);
    outcome
}

unsafe extern "C" fn enable_all_domains(on: u32, handle: Subscriber) -> CuptiResult {
    let Some(real) = library::cupti().and_then(|cupti| cupti.enable_all_domains) else { return NOT_INITIALIZED };
    let _arrival = arrive();
    // SAFETY: the client's own arguments, with CUPTI's handle.
    let outcome = unsafe { real(on, present(handle)) };
    domains_switched(on, true, outcome);
    outcome
}

unsafe extern "C" fn register_callbacks(requested: BufferRequestedFn, completed: BufferCompletedFn) -> CuptiResult {
    let Some(cupti) = library::cupti() else { return NOT_INITIALIZED };
    let _arrival = arrive_as(requested as usize);
    other::set_buffer_functions(Some((requested, completed)));
    // Our functions pass each request and each buffer on to its owner.
    // SAFETY: both are functions of this library, which is never unloaded.
    unsafe { (cupti.register_callbacks)(buffers::on_requested, buffers::on_completed) }
}

unsafe extern "C" fn register_timestamp(clock: TimestampFn) -> CuptiResult {
    let Some(real) = library::cupti().and_then(|cupti| cupti.register_timestamp) else { return NOT_INITIALIZED };
    let _arrival = arrive();
    // SAFETY: the client's own argument.
    let outcome = unsafe { real(clock) };
    if outcome == result::SUCCESS {
        other::set_timestamp(clock);
    }
    outcome
}

unsafe extern "C" fn enable(kind: u32) -> CuptiResult {
    let Some(cupti) = library::cupti() else { return NOT_INITIALIZED };
    let _arrival = arrive();
    // SAFETY: only takes a number.
    let outcome = unsafe { (cupti.enable)(kind) };
    guarded((), || {
        if let Some(mut known) = other::lock().filter(|_| outcome == result::SUCCESS && kind < 64) {
            known.kinds |= 1 << kind;
            known.flushed = false;
        }
    });
    outcome
}

unsafe extern "C" fn disable(kind: u32) -> CuptiResult {
    let Some(cupti) = library::cupti() else { return NOT_INITIALIZED };
    // If this library has already returned, the kind is ours.
    let ours = guarded(false, || is_recording() && kinds::records(kind));
    // SAFETY: only takes a number.
    let outcome = if ours { result::SUCCESS } else { unsafe { (cupti.disable)(kind) } };
    guarded((), || {
        if let Some(mut known) = other::lock().filter(|_| kind < 64) {
            known.kinds &= !(1 << kind);
        }
        other::note_call();
    });
    outcome
}

unsafe extern "C" fn flush_all(flag: u32) -> CuptiResult {
    let Some(cupti) = library::cupti() else { return NOT_INITIALIZED };
    // SAFETY: only takes a number.
    let outcome = unsafe { (cupti.flush_all)(flag) };
    guarded((), || {
        if let Some(mut known) = other::lock() {
            known.flushed |= known.kinds == 0;
        }
        other::note_call();
    });
    outcome
}
