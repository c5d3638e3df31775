//! Measures calls in which a thread waits for the GPU, in their callbacks.
//!
//! CUPTI's own records of waits (kind `SYNCHRONIZATION`) cost every launch several microseconds, whether it waits or
//! not.
//!
//! Timed are `cudaStreamSynchronize`, `cudaDeviceSynchronize`, `cudaEventSynchronize` and their driver forms. A stream
//! that waits for an event does not block a host thread and is not counted.

use core::cell::Cell;
use core::ptr;

use cupti::callback::CallbackData;
use cupti::ids::{WAIT_CALLS, WaitCall, result, site, sync_kind};

use crate::queue::QUEUE;
use crate::totals::{TOTALS, add};
use crate::{clock, library, lifecycle, limits, sys};

thread_local! {
    /// The outermost wait of this thread (domain and callback id), its start and its session; 0 outside waits. The end of a
    /// wait is not seen if its session has ended.
    static WAIT: Cell<(u32, u64, u64)> = const { Cell::new((0, 0, 0)) };
}

/// Returns the wait call with this callback id, if it is one.
pub fn call(domain: u32, cbid: u32) -> Option<&'static WaitCall> {
    WAIT_CALLS.iter().find(|call| call.domain == domain && call.cbid == cbid)
}

/// Handles the entry and exit of a call. The driver's call within the runtime's is the same wait; within a launch, it is ours.
pub fn on_call(call: &WaitCall, data: &CallbackData) {
    if limits::is_inside() {
        return;
    }
    let number = (call.domain << 16) | call.cbid;
    WAIT.with(|wait| {
        let (outermost, start, session) = wait.get();
        let outermost = if session == lifecycle::session() { outermost } else { 0 };
        if data.site == site::ENTER && outermost == 0 {
            wait.set((number, sys::now(), lifecycle::session()));
        } else if data.site == site::EXIT && outermost == number {
            wait.set((0, 0, 0));
            // SAFETY: on exit CUPTI points this at the call's result; null is checked.
            if unsafe { data.return_value.as_ref() }.copied().unwrap_or(0) == 0 {
                report(call, data, start, sys::now());
            }
        }
    });
}

fn report(call: &WaitCall, data: &CallbackData, start: u64, end: u64) {
    let offset = clock::offset();
    let mut bytes = [0; wire::Sync::SIZE];
    let wait = wire::Sync {
        correlation: data.correlation_id,
        kind: call.kind,
        context: data.context_uid,
        stream: stream(call, data),
        event: u32::MAX,
        start: start.wrapping_sub(offset),
        end: end.wrapping_sub(offset),
    };
    wait.encode(&mut bytes);
    lifecycle::guarded((), || {
        if QUEUE.append(&bytes, 1) {
            add(&TOTALS.syncs, 1);
        } else {
            add(&TOTALS.dropped_queue_full, 1);
        }
    });
}

/// Returns the id of the stream that the call waits for; `u32::MAX` if it waits for something else.
fn stream(call: &WaitCall, data: &CallbackData) -> u32 {
    let get = library::cupti().and_then(|cupti| cupti.get_stream_id);
    let Some(get) = get.filter(|_| call.kind == sync_kind::STREAM && !data.params.is_null()) else { return u32::MAX };
    let mut id = u32::MAX;
    // SAFETY: CUPTI points `params` at the call's parameters, of which the stream is the first.
    let outcome = unsafe {
        let stream = data.params.cast::<*mut core::ffi::c_void>().read();
        get(data.context, stream, u8::from(call.per_thread), ptr::from_mut(&mut id))
    };
    if outcome == result::SUCCESS { id } else { u32::MAX }
}
