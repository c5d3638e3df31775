//! The records' clock: CLOCK_REALTIME, or the client's. The GPU counts in CLOCK_MONOTONIC; a fixed distance joins them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use cupti::types::TimestampFn;

use crate::sys;

static CLIENT: OnceLock<TimestampFn> = OnceLock::new();
/// The client's clock less CLOCK_MONOTONIC; [`UNKNOWN`] before it is measured.
static DISTANCE: AtomicI64 = AtomicI64::new(UNKNOWN);
const UNKNOWN: i64 = i64::MIN;

/// The time on the records' clock.
pub fn now() -> u64 {
    match CLIENT.get() {
        // SAFETY: the client gave the function for this purpose.
        Some(clock) => unsafe { clock() },
        None => sys::realtime(),
    }
}

/// Measures the distance between two clocks. Zero if the client's is CLOCK_MONOTONIC itself, so that records are exact.
fn measure() -> i64 {
    let before = sys::now();
    let client = now();
    let after = sys::now();
    if (before..=after).contains(&client) { 0 } else { client as i64 - before as i64 }
}

/// Takes the client's clock; false if it has given one before.
pub fn set(clock: TimestampFn) -> bool {
    if CLIENT.set(clock).is_err() {
        return false;
    }
    DISTANCE.store(measure(), Ordering::Relaxed);
    true
}

/// A time of the GPU on the records' clock.
pub fn convert(time: u64) -> u64 {
    let mut distance = DISTANCE.load(Ordering::Relaxed);
    if distance == UNKNOWN {
        distance = measure();
        DISTANCE.store(distance, Ordering::Relaxed);
    }
    time.wrapping_add_signed(distance)
}
