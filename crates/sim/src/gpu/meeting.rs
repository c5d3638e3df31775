//! Kernels that end together with those of other processes, and the kernels behind them.
//!
//! The end of other operations is known when they are launched. That of these is known when the last member has launched its own, so a
//! thread for each such stream waits for it, and gives the kernels that were launched meanwhile their times, in order:
//!
//! ```text
//!   launches   a  M  b  c            M: a meeting
//!   stream     aaaMMMMMMMMMMMbbccc
//!                     ^ the last member launches its kernel
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Gets the time at which a kernel could start; returns its end, once that is known.
pub type Meet = Box<dyn FnOnce(u64) -> u64 + Send>;

thread_local! {
    static NEXT: RefCell<Option<Meet>> = const { RefCell::new(None) };
}

/// Makes the next kernel that this thread launches a meeting.
pub fn set_next(meet: Meet) {
    NEXT.set(Some(meet));
}

/// Returns what makes the kernel that this thread launches a meeting.
pub fn take_next() -> Option<Meet> {
    // A thread that is ending no longer has one, but may launch.
    NEXT.try_with(RefCell::take).ok().flatten()
}

/// What gives a kernel its times.
pub type Run = Box<dyn FnOnce() + Send>;

/// The kernels of a stream whose times are not known yet.
#[derive(Default)]
pub struct Meetings {
    busy: AtomicBool,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    runs: VecDeque<Run>,
    /// Its thread runs.
    started: bool,
}

impl std::fmt::Debug for Meetings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meetings").field("busy", &self.busy).finish_non_exhaustive()
    }
}

impl Meetings {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether times are not known yet.
    #[inline]
    pub fn busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Adds a kernel.
    pub fn add(&'static self, run: Run) {
        let mut waiting = self.waiting();
        waiting.runs.push_back(run);
        self.busy.store(true, Ordering::Release);
        if !waiting.started {
            let name = std::thread::Builder::new().name("sim-meetings".into());
            waiting.started = name.spawn(move || self.serve()).is_ok();
        }
        self.changed.notify_all();
    }

    fn serve(&self) {
        let mut waiting = self.waiting();
        loop {
            match waiting.runs.pop_front() {
                Some(run) => {
                    drop(waiting);
                    run();
                    waiting = self.waiting();
                }
                None => {
                    self.busy.store(false, Ordering::Release);
                    self.changed.notify_all();
                    waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Waits until all times are known.
    pub fn settle(&self) {
        if !self.busy() {
            return;
        }
        let mut waiting = self.waiting();
        while self.busy() {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
