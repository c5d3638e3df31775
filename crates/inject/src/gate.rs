//! Keeps launches out of CUDA while records are switched.
//!
//! CUPTI's documentation allows `cuptiActivityEnable` and `cuptiActivityDisable` at any time, but a launch that another
//! thread makes meanwhile may crash in CUPTI, or its record is lost (CUPTI 13.0 on an H200: a segmentation fault within
//! some hundred switches, and thousands of missing records). So a launch that begins while the gate is closed waits in
//! its callback, which is before CUPTI prepares its record, and nothing is switched before all others have returned.
//! Both waits are bounded: the program comes first.
//!
//! With the gate, 8 threads that launched without pause and a training program (262,860 launches) lost nothing. A
//! window's switch is given up after 0.3 ms and tried again later. The end of a recording waits 100 ms and is tried
//! eight times: on a busy machine a thread may be without a CPU for longer, and launches after a failed end would have
//! records but no marker (1 of some 550 rounds with 32 threads on 2 CPUs).

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{sys, totals, wakeup};

static CLOSED: AtomicBool = AtomicBool::new(false);
/// A thread has closed the gate, or is about to: one at a time.
static OWNED: AtomicBool = AtomicBool::new(false);
/// Launches that wait at the gate.
static HELD: AtomicU64 = AtomicU64::new(0);

/// The longest time that a launch waits at the gate.
const LONGEST_HOLD: u64 = 200_000_000;
/// Time from the callback at the end of a call to its return, with a large margin.
const RETURNING: u64 = 50_000;
/// A thread that waits longer than this sleeps between its checks.
const SPINNING: u64 = 100_000;
const SLEEP: u64 = 50_000;

/// Called at the beginning of a launch, after it was counted.
#[inline]
pub fn pass() {
    // Either this load sees the closed gate, or the gate's owner sees the count of this launch.
    if CLOSED.load(Ordering::SeqCst) {
        hold();
    }
}

#[cold]
#[inline(never)]
fn hold() {
    let errno = sys::errno();
    HELD.fetch_add(1, Ordering::SeqCst);
    wait(LONGEST_HOLD, || !CLOSED.load(Ordering::SeqCst));
    HELD.fetch_sub(1, Ordering::SeqCst);
    sys::set_errno(errno);
}

/// Runs `action` while no launch is under way. Returns false, and does not run it, if those that have begun do not return
/// within `patience` nanoseconds. Called by the sender, or within a call that is no launch.
pub fn close_for(patience: u64, action: impl FnOnce()) -> bool {
    if !wait(patience, || !OWNED.swap(true, Ordering::SeqCst)) {
        return false;
    }
    CLOSED.store(true, Ordering::SeqCst);
    // Read in this order, the difference is never too small: launches that are held stay held.
    let quiet = wait(patience, || {
        let held = HELD.load(Ordering::SeqCst);
        totals::in_flight() <= held
    });
    if quiet {
        wait(RETURNING, || false);
        action();
    }
    CLOSED.store(false, Ordering::SeqCst);
    OWNED.store(false, Ordering::SeqCst);
    quiet
}

/// Opens the gate in a forked child, which has no thread that would.
pub fn forked() {
    CLOSED.store(false, Ordering::SeqCst);
    OWNED.store(false, Ordering::SeqCst);
    HELD.store(0, Ordering::SeqCst);
}

/// Waits until the condition holds, for at most `nanoseconds`; false if it does not.
fn wait(nanoseconds: u64, condition: impl Fn() -> bool) -> bool {
    let start = sys::now();
    loop {
        if condition() {
            return true;
        }
        let passed = sys::now() - start;
        if passed >= nanoseconds {
            return false;
        }
        if passed < SPINNING {
            spin_loop();
        } else {
            wakeup::pause(SLEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that was forked while the gate was closed is not held at its launches: nobody would open the gate.
    #[test]
    fn a_forked_child_passes() {
        let mut status = 0;
        assert!(close_for(1_000_000_000, || {
            // SAFETY: the child only uses atomics and the clock, and exits at once.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    forked();
                    let begin = sys::now();
                    pass();
                    libc::_exit(i32::from(sys::now() - begin > LONGEST_HOLD / 2));
                }
                libc::waitpid(child, &mut status, 0);
            }
        }));
        assert_eq!(status, 0);
    }
}
