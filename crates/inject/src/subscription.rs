//! The subscription to CUPTI: the callbacks and the kinds of records that are enabled.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use cupti::ids::{INSTANTIATE_CALLS, LAUNCH_CALLS, WAIT_CALLS, domain, result};
use cupti::types::SubscriberParams;
use wire::Notice;

use crate::library::{self, Cupti};
use crate::notices::Notices;
use crate::queue::QUEUE;
use crate::{
    buffers, callbacks, calls, client, clock, gate, kinds, lifecycle, limits, nodes, sampling, search, stalls, sys,
    totals, wakeup,
};

static SUBSCRIBER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Subscribes, with no callback enabled; false if CUPTI refuses. If it is another client's turn, this library is aside.
pub fn enter(cupti: &Cupti, notices: &mut Notices) -> bool {
    client::watch(cupti);
    if !client::claim() {
        return false;
    }
    client::borrow(cupti);
    totals::forget_calls();
    let mut subscriber = ptr::null_mut();
    // SAFETY: the callback is a function of this library, which is never unloaded.
    let outcome = unsafe { (cupti.subscribe)(&mut subscriber, callbacks::on_api, ptr::null_mut()) };
    if outcome == result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
        client::occupied(&other_subscriber(cupti));
    } else if notices.check(cupti, "cuptiSubscribe", outcome) {
        SUBSCRIBER.store(subscriber, Ordering::SeqCst);
    } else {
        client::end(Some(cupti));
    }
    outcome == result::SUCCESS
}

/// Enables the callbacks, once subscribed; true if records can be enabled.
pub fn subscribe(cupti: &Cupti, notices: &mut Notices) -> bool {
    let subscriber = SUBSCRIBER.load(Ordering::SeqCst);
    if subscriber.is_null() {
        return false;
    }
    let launches = LAUNCH_CALLS.iter().map(|call| (call.domain, call.cbid, call.name));
    let waits = WAIT_CALLS.iter().map(|call| (call.domain, call.cbid, call.name));
    for (domain, cbid, name) in launches.chain(waits) {
        // SAFETY: the subscriber was just created.
        let outcome = unsafe { (cupti.enable_callback)(1, subscriber, domain, cbid) };
        // A release rejects calls that it does not know yet. If it fails for another reason, one notice is enough.
        if outcome != result::INVALID_PARAMETER
            && !notices.check(cupti, &format!("cuptiEnableCallback({name})"), outcome)
        {
            break;
        }
    }
    // A release that rejects the creation of nodes cannot report captured launches: they stay pending.
    let graphs = nodes::CALLBACKS.iter().map(|cbid| (domain::RESOURCE, *cbid));
    for (domain, cbid) in graphs.chain(INSTANTIATE_CALLS.iter().map(|cbid| (domain::DRIVER, *cbid))) {
        // SAFETY: the subscriber was just created.
        unsafe { (cupti.enable_callback)(1, subscriber, domain, cbid) };
    }
    stalls::subscribe(cupti, subscriber, notices);
    limits::subscribe(cupti, subscriber, notices);
    let borrowed = client::borrowed_resources();
    for cbid in (0..64).filter(|cbid| borrowed & (1 << cbid) != 0) {
        // SAFETY: the subscriber was just created.
        unsafe { (cupti.enable_callback)(1, subscriber, domain::RESOURCE, cbid) };
    }
    // SAFETY: both are functions of this library.
    let outcome = unsafe { (cupti.register_callbacks)(buffers::on_requested, buffers::on_completed) };
    notices.check(cupti, "cuptiActivityRegisterCallbacks", outcome)
}

/// Enables the records; true if any will arrive.
pub fn enable(cupti: &Cupti, notices: &mut Notices) -> bool {
    kinds::begin();
    let mut enabled = false;
    for kind in kinds::all() {
        // SAFETY: only takes a number.
        let outcome = unsafe { (cupti.enable)(kind) };
        enabled |= notices.check(cupti, &format!("cuptiActivityEnable({kind})"), outcome);
    }
    enabled
}

/// Enables the records in a process that already launches, and begins to mark launches; true if records will arrive.
pub fn begin(cupti: &Cupti, notices: &mut Notices) -> bool {
    let mut enabled = false;
    let mut switch = || {
        for kind in client::take_stray_kinds().filter(|kind| !kinds::records(*kind)) {
            // SAFETY: only takes a number.
            unsafe { (cupti.disable)(kind) };
        }
        enabled = enable(cupti, notices);
        sampling::set_recording(true);
        lifecycle::begin();
    };
    let begun = (0..ATTEMPTS).any(|attempt| {
        // The launches that have begun continue meanwhile, each time for another while: they may be regular.
        wakeup::pause_for(if attempt == 0 { 0 } else { LONG_PATIENCE / 5 * u64::from(1 + attempt * 3 % 5) });
        gate::close_for(PATIENCE_TO_BEGIN, &mut switch)
    });
    if !begun {
        notices.add(
            Notice::CuptiFailed,
            "launches under way did not return within 2 seconds, so GPU work is not recorded".into(),
        );
    }
    enabled
}

/// Marks no more launches, and disables the records of further ones; false if launches in flight do not return.
pub fn pause() -> bool {
    let disable = || {
        if let Some(cupti) = library::cupti() {
            disable_kinds(cupti);
        }
        lifecycle::leave();
    };
    // On a busy machine a launch may wait longer for a CPU. Those that were held continue meanwhile, marked.
    (0..ATTEMPTS_TO_PAUSE).any(|attempt| {
        wakeup::pause_for(if attempt == 0 { 0 } else { LONG_PATIENCE });
        gate::close_for(LONG_PATIENCE, disable)
    })
}

fn disable_kinds(cupti: &Cupti) {
    for kind in kinds::all() {
        // SAFETY: only takes a number; a kind that was never enabled is refused.
        unsafe { (cupti.disable)(kind) };
    }
}

/// Sends the functions that have a callback, and enables those of the runtime; false if CUPTI cannot report calls.
///
/// A callback costs 0.14 us even if nothing is done in it, so only those of traced functions are enabled
/// ([`enable_traced`]). The runtime's are enabled until its first call has been seen, traced or not: that call may have
/// begun before CUDA was initialised.
pub fn trace_calls(cupti: &Cupti, notices: &mut Notices) -> bool {
    let subscriber = SUBSCRIBER.load(Ordering::SeqCst);
    let (Some(enable), Some(name_of)) = (cupti.enable_domain, cupti.get_callback_name) else { return false };
    if subscriber.is_null() {
        return false;
    }
    let mut any = false;
    for domain in [domain::DRIVER, domain::RUNTIME] {
        for cbid in 1..wire::calls::FUNCTIONS as u32 {
            let mut name = ptr::null();
            // SAFETY: `name` is writable.
            if unsafe { name_of(domain, cbid, &mut name) } == result::SUCCESS
                && !name.is_null()
                && let Some(number) = wire::calls::function(domain, cbid)
            {
                // SAFETY: CUPTI's names end in 0 and are never freed.
                let name = unsafe { CStr::from_ptr(name) }.to_bytes();
                let mut bytes = vec![0; wire::text_size(name)];
                wire::encode_function(number.into(), name, &mut bytes);
                any |= QUEUE.append(&bytes, 0);
            }
        }
    }
    calls::begin();
    // SAFETY: the subscriber is subscribed.
    let outcome = unsafe { enable(1, subscriber, domain::RUNTIME) };
    any &= notices.check(cupti, "cuptiEnableDomain", outcome);
    if !any {
        calls::end();
    }
    any
}

/// Enables the callbacks of traced functions again, after subscribing again.
pub fn trace_again(cupti: &Cupti, notices: &mut Notices) {
    let subscriber = SUBSCRIBER.load(Ordering::SeqCst);
    let Some(enable) = cupti.enable_domain.filter(|_| calls::are_traced() && !subscriber.is_null()) else { return };
    // SAFETY: the subscriber is subscribed.
    let outcome = unsafe { enable(1, subscriber, domain::RUNTIME) };
    notices.check(cupti, "cuptiEnableDomain", outcome);
    ENABLED.store(false, Ordering::SeqCst);
    DISABLED.store(false, Ordering::SeqCst);
}

/// Whether the callbacks of traced driver functions are enabled, and those of other runtime functions disabled.
static ENABLED: AtomicBool = AtomicBool::new(false);
static DISABLED: AtomicBool = AtomicBool::new(false);

/// Enables the callbacks of traced driver functions, once it is known which they are.
pub fn enable_traced() {
    if calls::is_traced(domain::DRIVER, 0).is_some() && !ENABLED.swap(true, Ordering::SeqCst) {
        switch_callbacks(domain::DRIVER, 1, |traced| traced);
    }
}

/// Disables the callbacks of runtime functions that are not traced, once the first runtime call has been seen.
pub fn disable_untraced() {
    if calls::have_begun() && !DISABLED.swap(true, Ordering::SeqCst) {
        switch_callbacks(domain::RUNTIME, 0, |traced| !traced);
    }
}

/// Switches the callbacks of a domain for which `which` holds. Those that the library itself needs stay enabled.
fn switch_callbacks(of: u32, on: u32, which: impl Fn(bool) -> bool) {
    let subscriber = SUBSCRIBER.load(Ordering::SeqCst);
    let Some(cupti) = library::cupti().filter(|_| !subscriber.is_null()) else { return };
    for cbid in 1..wire::calls::FUNCTIONS as u32 {
        let needed = || {
            LAUNCH_CALLS.iter().any(|call| (call.domain, call.cbid) == (of, cbid))
                || WAIT_CALLS.iter().any(|call| (call.domain, call.cbid) == (of, cbid))
                || nodes::instantiates(of, cbid)
        };
        if calls::is_traced(of, cbid).is_some_and(&which) && !needed() {
            // SAFETY: the subscriber is subscribed. An id that CUPTI does not know is refused.
            unsafe { (cupti.enable_callback)(on, subscriber, of, cbid) };
        }
    }
}

/// Time that launches get to return before a session begins. Those that begin meanwhile wait.
const PATIENCE_TO_BEGIN: u64 = 20_000_000;
/// Time that launches get to return before records are switched.
const SHORT_PATIENCE: u64 = 300_000;
/// The same before records are disabled at the end: a launch may wait for room in a full stream.
const LONG_PATIENCE: u64 = 100_000_000;
/// How often a recording tries to end: warpscope waits 5 seconds for everything.
const ATTEMPTS_TO_PAUSE: u32 = 8;
/// How often disabling is tried before records stay enabled.
const ATTEMPTS: u32 = 25;

/// Switches records on or off. Returns false, and changes nothing, if launches in flight do not return soon.
///
/// The callbacks stay enabled. To count launches, those of the driver suffice, but when the callbacks of the runtime were
/// switched as well (CUPTI 13.0 on an H200), most launches had no callback at all.
pub fn switch(on: bool) -> bool {
    library::cupti().is_some_and(|cupti| {
        gate::close_for(SHORT_PATIENCE, || {
            for kind in kinds::all() {
                // SAFETY: only takes a number.
                unsafe { if on { (cupti.enable)(kind) } else { (cupti.disable)(kind) } };
            }
            sampling::set_recording(on);
        })
    })
}

/// Ends the session from outside CUPTI's callbacks: disables records and callbacks. The program continues.
pub fn stop() {
    lifecycle::end();
    calls::end();
    let cupti = library::cupti();
    if let Some(cupti) = cupti {
        leave(cupti);
        // CUPTI keeps our functions only as long as it has buffers of ours.
        if let Some((requested, completed)) = client::buffer_functions().filter(|_| !buffers::any_live()) {
            // SAFETY: the other client registered both.
            unsafe { (cupti.register_callbacks)(requested, completed) };
        }
    }
    client::end(cupti);
}

/// Ends the subscription, so that another client can use CUPTI. Records are disabled, if they are not yet.
pub fn leave(cupti: &Cupti) {
    let subscriber = SUBSCRIBER.swap(ptr::null_mut(), Ordering::SeqCst);
    if subscriber.is_null() {
        return;
    }
    let disable = || disable_kinds(cupti);
    // A call that never returns keeps records enabled: that costs time, but the program is safe.
    (0..ATTEMPTS).any(|_| gate::close_for(LONG_PATIENCE, disable));
    // SAFETY: the handle is from cuptiSubscribe and the swap makes this its only end.
    unsafe { (cupti.unsubscribe)(subscriber) };
    clock::set_client_clock(cupti);
    client::restore(cupti);
}

/// Identifies the other subscriber as far as possible.
fn other_subscriber(cupti: &Cupti) -> String {
    // From 13.3 on this call may succeed alongside another subscriber, so it is used only where it must fail.
    if let Some(subscribe) = cupti.subscribe_v2
        && (130_000..130_300).contains(&library::cupti_version())
    {
        let mut name = [0 as c_char; 128];
        let mut params = SubscriberParams {
            size: size_of::<SubscriberParams>(),
            name: c"warpscope".as_ptr(),
            old_name: name.as_mut_ptr(),
            old_size: name.len() - 1,
        };
        let mut subscriber = ptr::null_mut();
        // SAFETY: all pointers are valid for the call; the name's last byte stays 0.
        let outcome = unsafe { subscribe(&mut subscriber, callbacks::on_api, ptr::null_mut(), &mut params) };
        if outcome == result::SUCCESS {
            // The other client has unsubscribed in the meantime. The next run may succeed.
            // SAFETY: the handle was just created.
            unsafe { (cupti.unsubscribe)(subscriber) };
        }
        // SAFETY: the buffer is 0 at its end.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        let name = name.to_string_lossy();
        if !name.is_empty() && !name.contains("<not provided>") {
            return name.into_owned();
        }
    }
    match search::known_tool(&sys::maps()) {
        Some((tool, _)) => tool.into(),
        None => "another client of CUPTI".into(),
    }
}
