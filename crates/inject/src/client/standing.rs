//! Whose turn it is to use CUPTI.
//!
//! Two flags and sequential consistency decide who goes first: the client sets `WANTED` and then reads `STANDING`, the
//! sender sets `STANDING` and then reads `WANTED`.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::sys;

/// Nothing is recorded: nobody has to wait.
const NONE: u32 = 0;
/// This library uses CUPTI, or is about to.
const RECORDING: u32 = 1;
/// Another client uses CUPTI.
const ASIDE: u32 = 2;

static STANDING: AtomicU32 = AtomicU32::new(NONE);
/// Another client needs CUPTI.
pub static WANTED: AtomicBool = AtomicBool::new(false);
/// A client that the wrappers have not seen is subscribed.
pub static OCCUPIED: AtomicBool = AtomicBool::new(false);

/// Claims CUPTI for this library; false if another client uses it. Called before subscribing.
pub fn claim() -> bool {
    STANDING.store(RECORDING, Ordering::SeqCst);
    // Either a client that arrives now sees this and waits, or it is seen here.
    let wanted = WANTED.load(Ordering::SeqCst);
    if wanted {
        set_aside();
    }
    !wanted
}

/// This library has stepped aside: the other client continues.
pub fn set_aside() {
    STANDING.store(ASIDE, Ordering::SeqCst);
    sys::wake(&STANDING);
}

/// The session has ended: no client waits any more.
pub fn end() {
    STANDING.store(NONE, Ordering::SeqCst);
    sys::wake(&STANDING);
    OCCUPIED.store(false, Ordering::SeqCst);
}

/// A forked child has no session. Takes no lock.
pub fn forked() {
    STANDING.store(NONE, Ordering::SeqCst);
}

/// Whether this library has stepped aside.
pub fn is_aside() -> bool {
    STANDING.load(Ordering::SeqCst) == ASIDE
}

/// Whether this library records, or is about to.
pub fn is_recording() -> bool {
    STANDING.load(Ordering::SeqCst) == RECORDING
}

/// Whether another client waits until this library steps aside.
pub fn is_waiting() -> bool {
    WANTED.load(Ordering::SeqCst) && is_recording()
}

/// Waits until this library does not record, for at most `nanoseconds`.
pub fn wait(nanoseconds: u64) {
    let begin = sys::now();
    while is_recording() {
        let Some(left) = (begin + nanoseconds).checked_sub(sys::now()).filter(|left| *left > 0) else { break };
        sys::wait(&STANDING, RECORDING, left);
    }
}
