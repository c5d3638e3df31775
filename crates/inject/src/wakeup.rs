//! Wakes the sender thread.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::sys;

static WAKE: AtomicU32 = AtomicU32::new(0);
static ASLEEP: AtomicBool = AtomicBool::new(false);
static SENDER: AtomicI32 = AtomicI32::new(0);

/// Wakes the sender because there is work.
pub fn wake() {
    WAKE.fetch_add(1, Ordering::SeqCst);
    if ASLEEP.load(Ordering::SeqCst) {
        sys::wake(&WAKE);
    }
}

/// Registers the caller as the sender thread.
pub fn set_sender() {
    // SAFETY: only reads the thread id.
    SENDER.store(unsafe { libc::gettid() }, Ordering::Relaxed);
}

/// The sender thread ends: its number may become another thread's.
pub fn unset_sender() {
    SENDER.store(0, Ordering::Relaxed);
}

/// Whether the caller is the sender thread.
pub fn is_sender() -> bool {
    // SAFETY: only reads the thread id.
    SENDER.load(Ordering::Relaxed) == unsafe { libc::gettid() }
}

/// The number of wake-ups so far. A wake-up after this call ends the [`sleep`] that is passed the number.
pub fn count() -> u32 {
    WAKE.load(Ordering::SeqCst)
}

/// Sleeps until there is work that `seen` does not include, for at most `nanoseconds`.
pub fn sleep(seen: u32, nanoseconds: u64) {
    ASLEEP.store(true, Ordering::SeqCst);
    sys::wait(&WAKE, seen, nanoseconds);
    ASLEEP.store(false, Ordering::SeqCst);
}

/// Sleeps for `nanoseconds`.
pub fn pause_for(nanoseconds: u64) {
    let end = sys::now() + nanoseconds;
    while let Some(left) = end.checked_sub(sys::now()).filter(|left| *left > 0) {
        pause(left);
    }
}

/// Sleeps for at most `nanoseconds`, regardless of work.
pub fn pause(nanoseconds: u64) {
    sys::wait(&WAKE, WAKE.load(Ordering::Relaxed), nanoseconds);
}
