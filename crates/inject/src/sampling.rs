//! Decides for each launch what is recorded of it, if the cost is limited (`record --max-overhead`).
//!
//! | state | records | a launch |
//! | --- | --- | --- |
//! | `RECORDED` | on | is recorded; its stack is taken if it is chosen |
//! | `CHANGING` | being switched | is counted, and its records are discarded if there are any |
//! | `COUNTED` | off | is counted |
//!
//! Records are switched only when all launches that began in the previous state have returned, so no launch is both
//! recorded and counted, and none is neither.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::random::Countdown;
use crate::{environment, sys, totals, wakeup};

const RECORDED: u8 = 0;
const CHANGING: u8 = 1;
const COUNTED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(RECORDED);
/// The logarithm to base 2 of the launches per stack.
static RATE: AtomicU8 = AtomicU8::new(0);
/// Whether the cost is limited at all.
static LIMITED: AtomicBool = AtomicBool::new(false);
/// A time not after the current one, exact to the sender's ticks.
static COARSE_TIME: AtomicU64 = AtomicU64::new(0);

/// Correlation ids of launches whose records are discarded, at the place of their lowest bits: room for all calls of a
/// switch, also if it takes long. Memory that is not touched costs nothing.
static DISCARDED: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];
/// Whether there are any.
static ANY_DISCARDED: AtomicBool = AtomicBool::new(false);

/// The longest time that launches get to return before records are switched.
const LONGEST_QUIET: u64 = 20_000_000;

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

/// Chooses what is recorded of a launch.
#[inline]
pub fn choose(correlation: u32) -> Choice {
    if !LIMITED.load(Ordering::Relaxed) {
        return Choice::Stack(0);
    }
    match STATE.load(Ordering::SeqCst) {
        RECORDED => {
            let rate = RATE.load(Ordering::Relaxed);
            let due = rate == 0 || COUNTDOWN.with(|countdown| countdown.is_due(1 << rate));
            if due { Choice::Stack(rate) } else { Choice::NoStack }
        }
        state => {
            if state == CHANGING {
                DISCARDED[correlation as usize % DISCARDED.len()].store(correlation, Ordering::SeqCst);
                ANY_DISCARDED.store(true, Ordering::SeqCst);
            }
            Choice::Count
        }
    }
}

/// Whether the record of a launch is discarded.
#[inline]
pub fn is_discarded(correlation: u32) -> bool {
    ANY_DISCARDED.load(Ordering::Relaxed)
        && DISCARDED[correlation as usize % DISCARDED.len()].load(Ordering::SeqCst) == correlation
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
    STATE.load(Ordering::Relaxed) == RECORDED
}

/// Whether the cost is limited.
#[inline]
pub fn is_limited() -> bool {
    LIMITED.load(Ordering::Relaxed)
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

/// Switches records on or off with `switch`. Returns false, and changes nothing, if launches in flight do not return
/// soon. Called by the sender.
pub fn change(on: bool, switch: impl FnOnce()) -> bool {
    let (from, to) = if on { (COUNTED, RECORDED) } else { (RECORDED, COUNTED) };
    STATE.store(CHANGING, Ordering::SeqCst);
    let (begun, deadline) = (totals::Begun::now(), sys::now() + LONGEST_QUIET);
    while !begun.have_returned() {
        if sys::now() >= deadline {
            STATE.store(from, Ordering::SeqCst);
            return false;
        }
        wakeup::pause(50_000);
    }
    switch();
    STATE.store(to, Ordering::SeqCst);
    true
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
