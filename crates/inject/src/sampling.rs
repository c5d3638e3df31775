//! Decides for each launch what is recorded of it, if the cost is limited (`record --max-overhead`).
//!
//! | records | a launch |
//! | --- | --- |
//! | on | is recorded; its stack is taken if it is chosen |
//! | off | is counted |
//!
//! Records are switched while no launch is under way ([`crate::gate`]), so no launch is both recorded and counted, and
//! none is neither.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::random::Countdown;
use crate::{environment, sys};

/// Whether records are on.
static RECORDING: AtomicBool = AtomicBool::new(true);
/// The logarithm to base 2 of the launches per stack.
static RATE: AtomicU8 = AtomicU8::new(0);
/// Whether the cost is limited at all.
static LIMITED: AtomicBool = AtomicBool::new(false);
/// A time not after the current one, exact to the sender's ticks.
static COARSE_TIME: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTDOWN: Countdown = const { Countdown::new() };
    /// The thread's id; 0 until it is needed.
    static TID: Cell<u32> = const { Cell::new(0) };
}

/// What is recorded of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Everything. The stack stands for this many launches, as a logarithm to base 2.
    Stack(u8),
    /// Its records, without a stack.
    NoStack,
    /// Its count.
    Count,
}

/// Chooses what is recorded of a launch that has passed the gate.
#[inline]
pub fn choose() -> Choice {
    if !LIMITED.load(Ordering::Relaxed) {
        return Choice::Stack(0);
    }
    if !RECORDING.load(Ordering::SeqCst) {
        return Choice::Count;
    }
    let rate = RATE.load(Ordering::Relaxed);
    let due = rate == 0 || COUNTDOWN.with(|countdown| countdown.is_due(1 << rate));
    if due { Choice::Stack(rate) } else { Choice::NoStack }
}

/// Returns the message for a launch whose stack is not taken.
pub fn unmarked(correlation: u32, work: u8) -> wire::Unmarked {
    let tid = TID.with(|tid| {
        if tid.get() == 0 {
            // SAFETY: only reads the thread id.
            tid.set(unsafe { libc::gettid() } as u32);
        }
        tid.get()
    });
    wire::Unmarked { correlation, work, tid, time: COARSE_TIME.load(Ordering::Relaxed) }
}

/// Whether records are on.
pub fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// Whether the cost is limited.
#[inline]
pub fn is_limited() -> bool {
    LIMITED.load(Ordering::Relaxed)
}

/// Begins a session: everything is recorded.
pub fn begin() {
    RATE.store(0, Ordering::Relaxed);
    RECORDING.store(true, Ordering::SeqCst);
    LIMITED.store(false, Ordering::SeqCst);
}

/// Limits the cost from now on.
pub fn limit() {
    tick();
    LIMITED.store(true, Ordering::SeqCst);
}

/// Notes the time.
pub fn tick() {
    COARSE_TIME.store(sys::now(), Ordering::Relaxed);
}

/// Takes the stack of one launch in `2^rate` from now on.
pub fn set_rate(rate: u8) {
    RATE.store(rate, Ordering::Relaxed);
}

/// Notes that records were switched on or off. Called while the gate is closed.
pub fn set_recording(on: bool) {
    RECORDING.store(on, Ordering::SeqCst);
}

/// The budget in percent, or a fixed effort, from the environment.
pub fn from_environment() -> (Option<f64>, Option<(u8, u8)>) {
    let percent = environment::variable(wire::MAX_OVERHEAD_VARIABLE).and_then(|text| text.parse().ok());
    let fixed = environment::variable(wire::SAMPLING_VARIABLE).and_then(|text| {
        let (rate, share) = text.split_once(',')?;
        Some((rate.parse().ok()?, share.parse().ok()?))
    });
    (percent.filter(|percent: &f64| percent.is_finite() && *percent > 0.0), fixed)
}
