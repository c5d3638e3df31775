//! Waits for launches that began before the callbacks were enabled: nothing has counted them.
//!
//! A launch takes microseconds of CPU time, but on a busy machine its thread may be without a CPU for longer than any fixed
//! time. So the wait goes on while a thread is ready to run and has not run since.

use std::fs;

use crate::{sys, wakeup};

/// The wait if all threads get a CPU.
const SHORTEST: u64 = 50_000_000;
/// The wait if some do not: the recording begins nevertheless.
const LONGEST: u64 = 1_000_000_000;
/// How often threads are checked after the shortest wait.
const CHECK: u64 = 10_000_000;
/// A thread that has used this much CPU time has left a launch that was under way.
const ENOUGH: u64 = 1_000_000;

/// A thread, and the CPU time that it had used.
struct Thread {
    name: String,
    used: u64,
}

/// Waits until launches that are under way have returned.
pub fn wait() {
    let mut threads = threads();
    wakeup::pause_for(SHORTEST);
    let deadline = sys::now() + LONGEST;
    loop {
        threads.retain(Thread::waits_for_cpu);
        if threads.is_empty() || sys::now() >= deadline {
            return;
        }
        wakeup::pause_for(CHECK);
    }
}

/// Returns the threads of this process, except the caller.
fn threads() -> Vec<Thread> {
    // SAFETY: only reads the thread id.
    let own = unsafe { libc::gettid() }.to_string();
    let names = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| *name != own);
    names.filter_map(|name| Some(Thread { used: cpu_time(&name)?, name })).collect()
}

impl Thread {
    /// Whether it is ready to run and has hardly run since. False if that is not known.
    fn waits_for_cpu(&self) -> bool {
        let used = cpu_time(&self.name).map_or(u64::MAX, |now| now.saturating_sub(self.used));
        used < ENOUGH && is_ready(&self.name)
    }
}

/// Returns the CPU time of a thread in nanoseconds; `None` if it has ended, or the kernel does not say.
fn cpu_time(thread: &str) -> Option<u64> {
    let times = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    times.split(' ').next()?.parse().ok()
}

/// Whether a thread runs or is ready to.
fn is_ready(thread: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// Check that a thread that sleeps is not waited for, nor one that runs.
    #[test]
    fn threads_that_sleep_or_run_are_not_waited_for() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let asleep = thread::spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                thread::park();
            }
        });
        let busy = thread::spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
        });
        let all = threads();
        assert!(all.len() >= 2);
        while all.iter().any(|thread| is_ready(&thread.name) && thread.waits_for_cpu()) {
            thread::yield_now();
        }
        wait();
        STOP.store(true, Ordering::Relaxed);
        asleep.thread().unpark();
        asleep.join().expect("it ends");
        busy.join().expect("it ends");
    }
}
