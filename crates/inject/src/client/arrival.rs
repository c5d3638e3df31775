//! How other clients come, and whether they have left.

use core::sync::atomic::{AtomicU64, Ordering};

use super::other::{self, Arrival};
use super::standing::{self, OCCUPIED, WANTED};
use crate::lifecycle::guarded;
use crate::{sys, wakeup};

/// The longest time that another client waits until this library has stepped aside.
const LONGEST_WAIT: u64 = 3_000_000_000;
/// Time between two attempts to subscribe while an unknown client is subscribed.
const RETRY: u64 = 250_000_000;

/// When CUPTI last refused to subscribe.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// CUPTI has refused to subscribe: a client that the wrappers have not seen is subscribed.
pub fn occupied(name: &str) {
    other::set_name(name);
    OCCUPIED.store(true, Ordering::SeqCst);
    REFUSED.store(sys::now(), Ordering::Relaxed);
    standing::set_aside();
}

/// Whether the other client has left, or is idle, as far as known.
pub fn has_left() -> bool {
    let now = sys::now();
    if WANTED.load(Ordering::SeqCst) && !other::forget_if_left(now, &WANTED) {
        return false;
    }
    !OCCUPIED.load(Ordering::SeqCst) || now.saturating_sub(REFUSED.load(Ordering::Relaxed)) >= RETRY
}

/// Another client is about to use CUPTI: waits until this library has stepped aside. It stays there until the result is
/// dropped, and longer if the client has set up anything.
pub fn arrive() -> Option<Arrival> {
    guarded(None, || {
        let arrival = Arrival::begin(&WANTED);
        if standing::is_recording() && !wakeup::is_sender() {
            wakeup::wake();
            standing::wait(LONGEST_WAIT);
        }
        Some(arrival)
    })
}
