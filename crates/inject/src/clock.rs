//! The clock of CUPTI's records.
//!
//! CUPTI gets a callback that returns CLOCK_MONOTONIC, which is also the clock of `bpf_ktime_get_ns` and of the
//! kernel's mapping records. If CUPTI rejects it, the offset to CUPTI's own clock is measured and reported in a notice,
//! and the reader adds it. The join does not depend on the clock, except when ids have wrapped around.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cupti::ids::result;
use wire::Notice;

use crate::library::Cupti;
use crate::notices::Notices;
use crate::{client, sys};

static OFFSET: AtomicU64 = AtomicU64::new(0);

/// The offset that warpscope adds to the times of this session: 0 if CUPTI uses our clock.
pub fn offset() -> u64 {
    OFFSET.load(Ordering::Relaxed)
}

/// Whether our clock is set.
static DONE: AtomicBool = AtomicBool::new(false);

/// Sets CUPTI's clock and thread ids to the system's. If CUPTI rejects the clock, measures the [`offset`] to its own.
pub fn set(cupti: &Cupti, notices: &mut Notices) {
    if DONE.load(Ordering::Relaxed) {
        return;
    }
    if let Some(set) = cupti.set_thread_id_type {
        // SAFETY: only takes a number.
        let outcome = unsafe { set(1) };
        notices.check(cupti, "cuptiSetThreadIdType", outcome);
    }
    // SAFETY: the clock is a function of this library, which is never unloaded.
    let outcome = cupti.register_timestamp.map(|register| unsafe { register(clock) });
    if outcome == Some(result::SUCCESS) {
        DONE.store(true, Ordering::Relaxed);
        return;
    }
    let reason = outcome.map_or_else(|| "it has no such function".into(), |outcome| cupti.describe(outcome));
    notices.add(Notice::ForeignClock, format!("cuptiActivityRegisterTimestampCallback: {reason}"));
    let measured = measure(|| {
        let mut time = 0;
        // SAFETY: `time` is writable.
        let got = cupti.get_timestamp.is_some_and(|get| unsafe { get(&mut time) } == result::SUCCESS);
        // If CUPTI does not provide the time, use its default clock.
        if got { time } else { sys::clock(libc::CLOCK_REALTIME) }
    });
    OFFSET.store(measured, Ordering::Relaxed);
}

/// Sets another client's clock before it uses CUPTI: its own, or the one that CUPTI has by default.
pub fn set_client_clock(cupti: &Cupti) {
    if let Some(register) = cupti.register_timestamp.filter(|_| DONE.swap(false, Ordering::Relaxed)) {
        // SAFETY: the client's function, or one of this library, which is never unloaded.
        unsafe { register(client::timestamp().unwrap_or(default_clock)) };
    }
}

/// A time of our clock is not later than the current one by this much. CUPTI's default clock is later by decades.
const MARGIN: u64 = 3_600_000_000_000;

/// Corrects times of records that CUPTI gave its default clock although ours is set. It does so for the first kernels after a clock was
/// set again, as we do when another client has left, and at the start of every session but the first.
pub struct Correction {
    /// Later times are not ours.
    latest: u64,
}

impl Correction {
    /// For records that exist now.
    pub fn new() -> Self {
        let ours = DONE.load(Ordering::Relaxed);
        Self { latest: if ours { sys::now().saturating_add(MARGIN) } else { u64::MAX } }
    }

    /// Corrects the start and the end of a record.
    #[inline]
    pub fn apply(&self, start: &mut u64, end: &mut u64) {
        if *start > self.latest {
            self.convert(start, end);
        }
    }

    #[cold]
    fn convert(&self, start: &mut u64, end: &mut u64) {
        let offset = measure(|| sys::clock(libc::CLOCK_REALTIME));
        for time in [start, end] {
            if *time > self.latest {
                *time = time.wrapping_add(offset);
            }
        }
    }
}

/// CUPTI's default clock.
unsafe extern "C" fn default_clock() -> u64 {
    sys::clock(libc::CLOCK_REALTIME)
}

/// The clock that CUPTI stamps records with.
unsafe extern "C" fn clock() -> u64 {
    sys::now()
}

/// Returns the offset to add, with wrap-around, to another clock's time to get ours: the tightest of several bracketed
/// readings.
fn measure(other: impl Fn() -> u64) -> u64 {
    let readings = (0..16).map(|_| {
        let before = sys::now();
        let time = other();
        let width = sys::now().wrapping_sub(before);
        (width, before.wrapping_add(width / 2).wrapping_sub(time))
    });
    readings.min_by_key(|(width, _)| *width).map_or(0, |(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of the default clock become ours, and others stay, also an end that is missing.
    #[test]
    fn times_of_the_default_clock_are_corrected() {
        let (now, real) = (sys::now(), sys::clock(libc::CLOCK_REALTIME));
        let correction = Correction { latest: now + MARGIN };
        for (mut start, mut end, is_ours) in
            [(real - 5000, real - 1000, false), (real - 5000, 0, false), (now - 5000, now - 1000, true), (0, 0, true)]
        {
            let before = (start, end);
            correction.apply(&mut start, &mut end);
            if is_ours {
                assert_eq!((start, end), before);
            } else {
                assert!(start.abs_diff(now - 5000) < 1_000_000, "{start} {now}");
                assert!(end == 0 && before.1 == 0 || end.abs_diff(start + 4000) < 1_000_000, "{start} {end}");
            }
        }
    }

    /// The measured offset converts another clock to ours, even one that is ahead.
    #[test]
    fn the_offset_is_measured() {
        for ahead in [5_000_000_000_000u64, 5_000_000_000_000u64.wrapping_neg()] {
            let measured = measure(|| sys::now().wrapping_add(ahead));
            let error = measured.wrapping_add(ahead).cast_signed();
            assert!(error.abs() < 1_000_000, "{error} ns");
        }
    }
}
