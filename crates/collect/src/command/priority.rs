//! Thread priority. New threads inherit the niceness of the thread that starts them.

use std::sync::OnceLock;

/// The niceness that warpscope was started with, once it has been changed.
static ORIGINAL: OnceLock<libc::c_int> = OnceLock::new();

/// Raises the priority of this thread: it has little to do, but must react at once.
pub fn raise() {
    // SAFETY: plain system calls on this thread; a failure changes nothing.
    unsafe {
        ORIGINAL.get_or_init(|| libc::getpriority(libc::PRIO_PROCESS, 0));
        libc::setpriority(libc::PRIO_PROCESS, 0, -10);
    }
}

/// Undoes [`raise`] for a thread that was started after it.
pub fn restore() {
    if let Some(niceness) = ORIGINAL.get() {
        // SAFETY: a plain system call on this thread; a failure changes nothing.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, *niceness) };
    }
}

/// Lowers the priority of this thread.
pub fn lower() {
    // SAFETY: a plain system call on this thread; a failure changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}
