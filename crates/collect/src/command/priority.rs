//! Thread priority. New threads inherit the niceness of the thread that starts them.

use std::sync::OnceLock;

use rustix::process::{getpriority_process, setpriority_process};

/// The niceness that warpscope was started with, once it has been changed.
static ORIGINAL: OnceLock<i32> = OnceLock::new();

/// Raises the priority of this thread: it has little to do, but must react at once. A failure changes nothing.
pub fn raise() {
    ORIGINAL.get_or_init(|| getpriority_process(None).unwrap_or(0));
    let _ = setpriority_process(None, -10);
}

/// Undoes [`raise`] for a thread that was started after it.
pub fn restore() {
    if let Some(niceness) = ORIGINAL.get() {
        let _ = setpriority_process(None, *niceness);
    }
}

/// Lowers the priority of this thread.
pub fn lower() {
    let _ = setpriority_process(None, 10);
}
