//! GPUs that wait for Python, by the line.

use super::{TORCH, says::idle, scenario::Scenario};
use crate::support::programs::sources;

/// A program that waits for a reason, in a function, at the line with a mark.
fn waits(reason: &'static str, function: &'static str, mark: &str) -> Scenario {
    let source = std::fs::read_to_string(sources().join("programs/findings.py")).expect("it can be read");
    let line = source.lines().position(|line| line.ends_with(mark)).expect("a mark") + 1;
    Scenario::python(reason)
        .sim("kernel_ns=5ms")
        .options("--off-cpu")
        .says(idle(function).at(format!("{function} (findings.py:{line})")))
        .never(&TORCH)
}

scenarios! {
    a_loader_that_sleeps => waits("nap", "nap", "# sleeps");
    a_loader_that_computes => waits("decode", "decode", "# computes");
    /// Another thread has the lock.
    a_lock_in_python => waits("lock", "borrow", "# waits for the lock");
    /// Another thread fills the queue: the wait is in the library's code, which the line calls.
    a_queue => waits("queue", "next_batch", "# waits for a batch");
    /// The program makes circles, and the collector frees them.
    garbage_collection => waits("collect", "collect", "# frees circles");
}
