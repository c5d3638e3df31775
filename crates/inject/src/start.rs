//! Starts a session: sets CUPTI up, in the required order.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use cupti::ids::{LAUNCH_CALLS, WAIT_CALLS, domain, kind, resource, result};
use cupti::types::{CuptiResult, SubscriberParams};
use wire::{Notice, Refusal};

use crate::connect::Refused;
use crate::library::{self, Cupti};
use crate::queue::QUEUE;
use crate::{buffers, callbacks, calls, connect, lifecycle, search, sender, sys, waits};

/// The result of the search for libcupti.
pub enum Found {
    /// Its functions and its path.
    Library(Cupti, String),
    /// Nothing; the text lists the locations tried.
    Nothing(String),
}

/// The kinds of activity that are recorded.
const KINDS: [u32; 4] = [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMCPY2, kind::MEMSET];

static SUBSCRIBER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Starts the session on a connected socket, which the library owns from then on. Called at most once per process.
/// Returns the reason if there is no session.
pub fn start(socket: i32, found: Found, driver: u32) -> Option<Refused> {
    let ready = QUEUE.prepare() && buffers::prepare();
    if !ready {
        let error = sys::errno();
        // SAFETY: the descriptor was given to us.
        unsafe { libc::close(socket) };
        return Some(Refused(Refusal::Memory, error));
    }
    if !lifecycle::open(socket) {
        return Some(Refused(Refusal::Exit, sys::errno()));
    }
    let mut notices = Vec::new();
    let mut hello = wire::Hello {
        version: wire::VERSION,
        pid: lifecycle::pid(),
        session: lifecycle::session(),
        driver,
        ..Default::default()
    };
    let cupti = match found {
        Found::Library(cupti, path) => {
            notices.push((Notice::Library, path));
            // SAFETY: `hello.cupti` is writable.
            let outcome = unsafe { (cupti.get_version)(&mut hello.cupti) };
            check(&cupti, "cuptiGetVersion", outcome, &mut notices);
            let cupti = library::install(cupti, hello.cupti);
            hello.clock_offset = set_clock(cupti, &mut notices);
            waits::set_clock_offset(hello.clock_offset);
            Some(cupti)
        }
        Found::Nothing(tried) => {
            notices.push((Notice::NoCupti, tried));
            None
        }
    };
    let mut bytes = [0; wire::Hello::SIZE];
    hello.encode(&mut bytes);
    QUEUE.append(&bytes, 0);
    let records = cupti.is_some_and(|cupti| subscribe(cupti, &mut notices));
    let traced = crate::entry::variable(wire::CALLS_VARIABLE).is_some();
    let reported = traced && cupti.is_some_and(|cupti| trace_calls(cupti, &mut notices));
    for (notice, text) in notices {
        notify(notice, &text);
    }
    if traced {
        let mut bytes = [0; wire::FunctionsEnd::SIZE];
        wire::FunctionsEnd { reported: reported.into() }.encode(&mut bytes);
        QUEUE.append(&bytes, 0);
    }
    if !sender::spawn(records) {
        // Without the sender nothing can be reported: restore the program's state.
        let error = sys::errno();
        stop();
        lifecycle::close();
        return Some(Refused(Refusal::Thread, error));
    }
    if traced {
        connect::await_welcome(lifecycle::socket(), wire::CALLS_PATIENCE_MS);
    } else if records {
        connect::await_welcome(lifecycle::socket(), wire::WELCOME_PATIENCE_MS);
    }
    None
}

/// Enables the callbacks of all API calls, and sends the functions that have one; false if CUPTI cannot report calls.
fn trace_calls(cupti: &Cupti, notices: &mut Vec<(Notice, String)>) -> bool {
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
    for domain in [domain::DRIVER, domain::RUNTIME] {
        // SAFETY: the subscriber is subscribed.
        let outcome = unsafe { enable(1, subscriber, domain) };
        any &= check(cupti, &format!("cuptiEnableDomain({domain})"), outcome, notices);
    }
    if !any {
        calls::end();
    }
    any
}

/// Ends the session from outside CUPTI's callbacks: disables records and callbacks. The program continues.
pub fn stop() {
    lifecycle::end();
    calls::end();
    let subscriber = SUBSCRIBER.swap(ptr::null_mut(), Ordering::SeqCst);
    if let Some(cupti) = library::cupti()
        && !subscriber.is_null()
    {
        for kind in KINDS {
            // SAFETY: only takes a number; a kind that was never enabled is refused.
            unsafe { (cupti.disable)(kind) };
        }
        // SAFETY: the handle is from cuptiSubscribe and the swap makes this its only end.
        unsafe { (cupti.unsubscribe)(subscriber) };
    }
}

/// Queues a notice.
fn notify(notice: Notice, text: &str) {
    let mut bytes = vec![0; wire::text_size(text.as_bytes())];
    wire::encode_notice(notice, text.as_bytes(), &mut bytes);
    QUEUE.append(&bytes, 0);
}

/// Whether a call succeeded; if not, adds a notice.
fn check(cupti: &Cupti, call: &str, outcome: CuptiResult, notices: &mut Vec<(Notice, String)>) -> bool {
    if outcome != result::SUCCESS {
        notices.push((Notice::CuptiFailed, format!("{call}: {}", cupti.describe(outcome))));
    }
    outcome == result::SUCCESS
}

/// Sets CUPTI's clock and thread ids to the system's. Returns the offset to add to its times: 0 if it accepted the
/// clock.
fn set_clock(cupti: &Cupti, notices: &mut Vec<(Notice, String)>) -> u64 {
    if let Some(set) = cupti.set_thread_id_type {
        // SAFETY: only takes a number.
        let outcome = unsafe { set(1) };
        check(cupti, "cuptiSetThreadIdType", outcome, notices);
    }
    // SAFETY: the clock is a function of this library, which is never unloaded.
    let outcome = cupti.register_timestamp.map(|register| unsafe { register(clock) });
    if outcome == Some(result::SUCCESS) {
        return 0;
    }
    let reason = outcome.map_or_else(|| "it has no such function".into(), |outcome| cupti.describe(outcome));
    notices.push((Notice::ForeignClock, format!("cuptiActivityRegisterTimestampCallback: {reason}")));
    offset(|| {
        let mut time = 0;
        // SAFETY: `time` is writable.
        let got = cupti.get_timestamp.is_some_and(|get| unsafe { get(&mut time) } == result::SUCCESS);
        // If CUPTI does not provide the time, use its default clock.
        if got { time } else { sys::clock(libc::CLOCK_REALTIME) }
    })
}

/// The clock that CUPTI stamps records with.
unsafe extern "C" fn clock() -> u64 {
    sys::now()
}

/// Returns the offset to add, with wrap-around, to another clock's time to get ours: the tightest of several bracketed
/// readings.
fn offset(other: impl Fn() -> u64) -> u64 {
    let readings = (0..16).map(|_| {
        let before = sys::now();
        let time = other();
        let width = sys::now().wrapping_sub(before);
        (width, before.wrapping_add(width / 2).wrapping_sub(time))
    });
    readings.min_by_key(|(width, _)| *width).map_or(0, |(_, offset)| offset)
}

/// Subscribes and enables the callbacks and records; true if records will arrive.
fn subscribe(cupti: &Cupti, notices: &mut Vec<(Notice, String)>) -> bool {
    let mut subscriber = ptr::null_mut();
    // SAFETY: the callback is a function of this library, which is never unloaded.
    let outcome = unsafe { (cupti.subscribe)(&mut subscriber, callbacks::on_api, ptr::null_mut()) };
    if outcome == result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
        notices.push((Notice::OtherSubscriber, other_subscriber(cupti)));
        return false;
    }
    if !check(cupti, "cuptiSubscribe", outcome, notices) {
        return false;
    }
    SUBSCRIBER.store(subscriber, Ordering::SeqCst);
    let launches = LAUNCH_CALLS.iter().map(|call| (call.domain, call.cbid, call.name));
    let waits = WAIT_CALLS.iter().map(|call| (call.domain, call.cbid, call.name));
    for (domain, cbid, name) in launches.chain(waits) {
        // SAFETY: the subscriber was just created.
        let outcome = unsafe { (cupti.enable_callback)(1, subscriber, domain, cbid) };
        // A release rejects calls that it does not know yet. If it fails for another reason, one notice is enough.
        if outcome != result::INVALID_PARAMETER
            && !check(cupti, &format!("cuptiEnableCallback({name})"), outcome, notices)
        {
            break;
        }
    }
    // A release that rejects this cannot report captured launches: they stay pending.
    // SAFETY: the subscriber was just created.
    unsafe { (cupti.enable_callback)(1, subscriber, domain::RESOURCE, resource::GRAPH_NODE_CREATED) };
    // SAFETY: both are functions of this library.
    let outcome = unsafe { (cupti.register_callbacks)(buffers::on_requested, buffers::on_completed) };
    if !check(cupti, "cuptiActivityRegisterCallbacks", outcome, notices) {
        return false;
    }
    let mut enabled = false;
    for kind in KINDS {
        // SAFETY: only takes a number.
        let outcome = unsafe { (cupti.enable)(kind) };
        enabled |= check(cupti, &format!("cuptiActivityEnable({kind})"), outcome, notices);
    }
    enabled
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
        if !name.is_empty() {
            return name.to_string_lossy().into_owned();
        }
    }
    match search::known_tool(&sys::maps()) {
        Some((tool, path)) => format!("probably {tool} ({path})"),
        None => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measured offset converts another clock to ours, even one that is ahead.
    #[test]
    fn the_offset_is_measured() {
        for ahead in [5_000_000_000_000u64, 5_000_000_000_000u64.wrapping_neg()] {
            let measured = offset(|| sys::now().wrapping_add(ahead));
            let error = measured.wrapping_add(ahead).cast_signed();
            assert!(error.abs() < 1_000_000, "{error} ns");
        }
    }
}
