//! The records' clock: CLOCK_REALTIME, or the client's. The GPU uses CLOCK_MONOTONIC; a fixed offset converts between
//! them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use cupti::types::TimestampFn;

use crate::sys;

static CLIENT: RwLock<Option<TimestampFn>> = RwLock::new(None);
/// The client's clock minus CLOCK_MONOTONIC; [`UNKNOWN`] before it is measured.
static OFFSET: AtomicI64 = AtomicI64::new(UNKNOWN);
const UNKNOWN: i64 = i64::MIN;

/// Returns the time on the records' clock.
pub fn now() -> u64 {
    let client = *CLIENT.read().unwrap_or_else(PoisonError::into_inner);
    match client {
        // SAFETY: the client registered the function for this purpose.
        Some(clock) => unsafe { clock() },
        None => sys::realtime(),
    }
}

/// Measures the offset between two clocks. Zero if the client's is CLOCK_MONOTONIC itself, so that records are exact.
fn measure() -> i64 {
    let before = sys::now();
    let client = now();
    let after = sys::now();
    if (before..=after).contains(&client) { 0 } else { client as i64 - before as i64 }
}

/// How often a clock was set, and how many kernels have the default clock since.
static TIMES_SET: AtomicU64 = AtomicU64::new(0);
static SPOILED: AtomicU64 = AtomicU64::new(0);

/// Returns how far the clock of the next kernel is from the records' clock.
pub fn next_distance() -> u64 {
    let take = |left: u64| left.checked_sub(1);
    match SPOILED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
        Ok(_) => sys::realtime().wrapping_sub(now()),
        Err(_) => 0,
    }
}

/// Sets the client's clock. `spoils`: the first kernels do not have it, one for each time that a clock was set before.
pub fn set(clock: TimestampFn, spoils: bool) {
    let before = TIMES_SET.fetch_add(1, Ordering::Relaxed);
    SPOILED.store(if spoils { before } else { 0 }, Ordering::Relaxed);
    *CLIENT.write().unwrap_or_else(PoisonError::into_inner) = Some(clock);
    OFFSET.store(measure(), Ordering::Relaxed);
}

/// Converts a time of the GPU to the records' clock.
pub fn convert(time: u64) -> u64 {
    let mut distance = OFFSET.load(Ordering::Relaxed);
    if distance == UNKNOWN {
        distance = measure();
        OFFSET.store(distance, Ordering::Relaxed);
    }
    time.wrapping_add_signed(distance)
}
