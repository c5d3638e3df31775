//! The subscriber: one per process, called only for what it has enabled.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use cupti::callback::{CallbackData, ResourceData};
use cupti::ids::{domain, resource, result};
use cupti::types::{CallbackFn, SubscriberParams};

use super::{buffer, code, gpu, pc_sampling, queue};
use crate::gpu::answer;
use crate::script::Script;
use crate::table::{Hooks, Table};
use crate::{cuda, cudart};

/// A subscription. Never freed, because a callback may be running when the client unsubscribes.
struct Subscription {
    callback: CallbackFn,
    data: *mut c_void,
    /// What it called itself.
    name: CString,
}

static SUBSCRIPTION: AtomicPtr<Subscription> = AtomicPtr::new(std::ptr::null_mut());

static HOOKS: Hooks = Hooks { api, resource: on_resource, activity: queue::produce, module: pc_sampling::loaded };

/// The name of the script's other client, and what CUPTI 13.0 reports for a client that gave none.
const OTHER: &CStr = c"simulated profiler";
const UNNAMED: &CStr = c"CUPTI for <not provided>";

fn call(of: u32, cbid: u32, data: *const c_void) {
    if pc_sampling::is_lost() {
        return;
    }
    // SAFETY: null, or a subscription, which is never freed.
    let Some(subscription) = (unsafe { SUBSCRIPTION.load(Ordering::Acquire).as_ref() }) else { return };
    // SAFETY: the client registered the function for this purpose, and `data` has the domain's type.
    unsafe { (subscription.callback)(subscription.data, of, cbid, data) };
    // Counted afterwards, so that the call above is not a tail call and this library has its frame on the stack.
    if let Ok(gpu) = gpu() {
        gpu.truth.callbacks.add(1);
    }
}

fn api(of: u32, cbid: u32, data: &CallbackData) {
    call(of, cbid, std::ptr::from_ref(data).cast());
}

fn on_resource(cbid: u32, data: &ResourceData) {
    call(domain::RESOURCE, cbid, std::ptr::from_ref(data).cast());
}

/// Connects this library to the GPU; an error if another libcupti is connected.
pub fn attach(gpu: &Table) -> Result<(), u32> {
    if (gpu.attach)(&HOOKS) { Ok(()) } else { Err(result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) }
}

fn subscribe(
    handle: *mut *mut c_void,
    callback: Option<CallbackFn>,
    data: *mut c_void,
    name: &CStr,
) -> Result<(), u32> {
    let gpu = gpu()?;
    let callback = callback.filter(|_| !handle.is_null()).ok_or(result::INVALID_PARAMETER)?;
    if (gpu.script)().other_subscriber {
        return Err(result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    }
    attach(gpu)?;
    let new = Box::into_raw(Box::new(Subscription { callback, data, name: name.to_owned() }));
    let null = std::ptr::null_mut();
    if SUBSCRIPTION.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: it came from `into_raw` and has not been shared.
        drop(unsafe { Box::from_raw(new) });
        return Err(result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    }
    answer(handle, new.cast())
}

fn check(handle: *mut c_void) -> Result<&'static Table, u32> {
    let gpu = gpu()?;
    if handle.is_null() || handle != SUBSCRIPTION.load(Ordering::Acquire).cast() {
        return Err(result::INVALID_PARAMETER);
    }
    Ok(gpu)
}

/// Ids introduced with CUDA 13, which older releases reject.
fn known(script: &Script, of: u32, cbid: u32) -> bool {
    script.release.driver >= 13000
        || match of {
            // Ids from 900 on are the simulator's own.
            domain::DRIVER => !(796..900).contains(&cbid),
            domain::RUNTIME => !(505..900).contains(&cbid),
            domain::RESOURCE => cbid < resource::GRAPH_NODE_UPDATED,
            _ => true,
        }
}

#[unsafe(no_mangle)]
extern "C" fn cuptiSubscribe(handle: *mut *mut c_void, callback: Option<CallbackFn>, data: *mut c_void) -> u32 {
    code(subscribe(handle, callback, data, UNNAMED))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiSubscribe_v2(
    handle: *mut *mut c_void,
    callback: Option<CallbackFn>,
    data: *mut c_void,
    params: *mut SubscriberParams,
) -> u32 {
    // SAFETY: the client passes its parameters, or null.
    let params = unsafe { params.as_ref() };
    let name = params.map(|params| params.name).filter(|name| !name.is_null());
    // SAFETY: the client's name ends in 0.
    let name = name.map_or(UNNAMED, |name| unsafe { CStr::from_ptr(name) });
    let outcome = subscribe(handle, callback, data, name);
    if let (Err(result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED), Some(params)) = (outcome, params) {
        let old = existing().to_bytes_with_nul();
        if !params.old_name.is_null() && params.old_size >= old.len() {
            // SAFETY: the client guarantees that many bytes there.
            unsafe { std::ptr::copy_nonoverlapping(old.as_ptr().cast::<c_char>(), params.old_name, old.len()) };
        }
    }
    code(outcome)
}

/// Returns the name of the client that is subscribed.
fn existing() -> &'static CStr {
    // SAFETY: null, or a subscription, which is never freed.
    unsafe { SUBSCRIPTION.load(Ordering::Acquire).as_ref() }.map_or(OTHER, |subscription| &subscription.name)
}

/// Ends the subscription.
fn end(gpu: &Table) {
    for of in [domain::DRIVER, domain::RUNTIME, domain::RESOURCE] {
        gpu.switches.set_domain(of, false);
    }
    SUBSCRIPTION.store(std::ptr::null_mut(), Ordering::Release);
}

#[unsafe(no_mangle)]
extern "C" fn cuptiUnsubscribe(handle: *mut c_void) -> u32 {
    code(check(handle).map(end))
}

/// Ends everything that any client has set up.
#[unsafe(no_mangle)]
extern "C" fn cuptiFinalize() -> u32 {
    code(gpu().map(|gpu| {
        queue::flush(gpu, true);
        end(gpu);
        gpu.switches.clear_kinds();
        buffer::set_client(None);
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiEnableCallback(enable: u32, handle: *mut c_void, of: u32, cbid: u32) -> u32 {
    code(check(handle).and_then(|gpu| match of {
        domain::DRIVER | domain::RUNTIME | domain::RESOURCE => {
            let good = cbid != 0 && known((gpu.script)(), of, cbid) && gpu.switches.set_callback(of, cbid, enable != 0);
            if good { Ok(()) } else { Err(result::INVALID_PARAMETER) }
        }
        // Nothing happens there, but the domain exists.
        domain::SYNCHRONIZE | domain::NVTX | domain::STATE => Ok(()),
        _ => Err(result::INVALID_PARAMETER),
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiEnableDomain(enable: u32, handle: *mut c_void, of: u32) -> u32 {
    code(check(handle).and_then(|gpu| match of {
        domain::DRIVER..=domain::STATE => {
            gpu.switches.set_domain(of, enable != 0);
            Ok(())
        }
        _ => Err(result::INVALID_PARAMETER),
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiEnableAllDomains(enable: u32, handle: *mut c_void) -> u32 {
    code(check(handle).map(|gpu| {
        for of in [domain::DRIVER, domain::RUNTIME, domain::RESOURCE] {
            gpu.switches.set_domain(of, enable != 0);
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetCallbackState(enable: *mut u32, handle: *mut c_void, of: u32, cbid: u32) -> u32 {
    code(check(handle).and_then(|gpu| answer(enable, u32::from(gpu.switches.callback(of, cbid)))))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetCallbackName(of: u32, cbid: u32, name: *mut *const c_char) -> u32 {
    let found = match of {
        domain::DRIVER => cuda::names::name(cbid),
        domain::RUNTIME => cudart::names::name(cbid),
        _ => None,
    };
    code(gpu().and_then(|_| answer(name, found.ok_or(result::INVALID_PARAMETER)?.as_ptr())))
}
