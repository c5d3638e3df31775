//! Measures single launches with hardware counters: `record --limits`.
//!
//! CUPTI's range profiler counts what happens between two points. A launch that is measured has one before it and one after
//! it, and runs alone and once: nothing is replayed. What one pass of the hardware can count is a group of metrics; other
//! launches of the same kernel are measured for the other groups.
//!
//! ```text
//!   launches   . . # # . # . . . # . . . . . . # .          . . # # . #
//!   window     [ group 0 ...                    ]           [ group 1 ...
//! ```
//!
//! Measured on an H200 (CUPTI 13.0):
//! - Beginning a window takes 65 ms, with another group 210 ms, and ending it 10 ms. So it stays open for up to 128 launches.
//!   Launches that are not measured are as fast in a window as outside one.
//! - A measured launch takes 1 to 1.5 ms more: CUPTI waits for all work before and after it.
//! - The range is 10 to 20 us longer than the kernel. So rates are those of the kernel's record, which has its exact time.
//! - CUPTI separates ranges with a kernel of its own ([`cupti::limits::SEPARATOR`]), which has a record: it is not passed on.
//! - A range that begins while a stream is captured makes the capture fail. Nothing is measured meanwhile.
//!
//! A forked child has no session, so it calls nothing here.
//!
//! A kernel waits for all others while it is measured, so communication kernels are not measured: their peers could wait for
//! what comes after. The time that all this takes is within a budget.

mod launch;
mod window;

use core::cell::Cell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cupti::callback::CallbackData;
use cupti::ids::{BEGIN_CAPTURE_CALLS, END_CAPTURE_CALLS, domain, resource, result, site};
use cupti::limits::ANNOUNCED;
use cupti::types::Subscriber;
use wire::Notice;

use crate::library::{self, Cupti};
use crate::notices::Notices;
use crate::queue::QUEUE;
use crate::{client, environment, gate, launches, lifecycle, sampling, sys, totals, wakeup};
use launch::Shape;
use window::{Failed, Groups, Window};

/// The share of the time, in percent, that measuring may take, and what it may take beside that: enough for the launches of a
/// window. Beginning the first one (0.5 to 1 s on an H200) does not count.
const BUDGET: f64 = 8.0;
const CREDIT: f64 = 200e6;
/// How long a window stays open, if fewer launches than fit into it are measured.
const LONGEST_WINDOW: u64 = 4_000_000_000;
/// The most kernels, by name and shape, whose launches are counted. The launches of others are not measured.
const MOST_KERNELS: usize = 16_384;
/// How long launches get to return before a window is ended from outside them.
const PATIENCE: u64 = 100_000_000;

/// Launches are measured.
static WANTED: AtomicBool = AtomicBool::new(false);
/// A launch of this process has been measured.
static MEASURED: AtomicBool = AtomicBool::new(false);
/// Streams that are being captured. Until the last one has ended, no range may begin.
static CAPTURES: AtomicU32 = AtomicU32::new(0);
/// The correlation ids of the last launches that were measured, by their remainder.
static RECENT: [AtomicU32; 4096] = [const { AtomicU32::new(0) }; 4096];

static STATE: Mutex<Option<State>> = Mutex::new(None);

thread_local! {
    /// The launch of this thread that is being measured; 0 for none.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
    /// This thread is in this module: what it calls is not the program's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

struct State {
    /// A part of the names of kernels that are measured.
    filter: Vec<u8>,
    percent: f64,
    /// When the first kernel was launched; 0 before.
    began: u64,
    took: u64,
    /// What of that does not count.
    free: u64,
    window: Option<Window>,
    groups: Groups,
    /// The group of the next window.
    next: usize,
    /// The launches of each kernel while its group could be measured: the 1st, 8th, 64th ... is.
    launches: HashMap<(usize, u64), u32>,
    /// The functions that were launched. The first launch loads the code, which would count as well.
    loaded: HashSet<usize>,
    /// All kernels, and those that were measured for the first group, which decides most about them; whether the window had one of
    /// these for the first time.
    kernels: HashSet<u64>,
    judged: HashSet<u64>,
    progress: bool,
    /// The launch being measured, and the calls that had begun before it.
    current: Option<(u32, totals::Begun)>,
    totals: wire::LimitTotals,
    sent: wire::LimitTotals,
}

/// Whether launches are measured.
#[inline]
pub fn are_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Whether the thread's calls are ours.
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// Whether a record is that of a kernel with which CUPTI separates ranges.
///
/// # Safety
/// `name` must be null or point to a C string.
pub unsafe fn is_separator(correlation: u32, name: *const core::ffi::c_char) -> bool {
    MEASURED.load(Ordering::Relaxed)
        && RECENT[correlation as usize % RECENT.len()].load(Ordering::Relaxed) == correlation
        && !name.is_null()
        // SAFETY: as the caller guarantees.
        && unsafe { CStr::from_ptr(name) } == cupti::limits::SEPARATOR
}

/// Enables what measuring needs, if it was requested.
pub fn subscribe(cupti: &Cupti, subscriber: Subscriber, notices: &mut Notices) {
    let Some(filter) = environment::variable(wire::LIMITS_VARIABLE) else { return };
    if cupti.range_profiler.is_none() {
        let text = format!("{} this libcupti has no range profiler", result::NOT_SUPPORTED);
        notices.add(Notice::NoLimits, text);
        return;
    }
    // SAFETY: the subscriber was just created.
    let outcome =
        unsafe { (cupti.enable_callback)(1, subscriber, domain::RESOURCE, resource::CONTEXT_DESTROY_STARTING) };
    notices.check(cupti, "cuptiEnableCallback(RESOURCE)", outcome);
    for cbid in BEGIN_CAPTURE_CALLS.into_iter().chain(END_CAPTURE_CALLS) {
        // SAFETY: the subscriber was just created. A release that does not know the call rejects it.
        unsafe { (cupti.enable_callback)(1, subscriber, domain::DRIVER, cbid) };
    }
    CAPTURES.store(0, Ordering::Relaxed);
    let percent = sampling::from_environment().0.map_or(BUDGET, |limit| BUDGET.min(limit / 2.0));
    *lock() = Some(State {
        filter: filter.into_bytes(),
        percent,
        began: 0,
        took: 0,
        free: 0,
        window: None,
        groups: Groups::default(),
        next: 0,
        launches: HashMap::new(),
        loaded: HashSet::new(),
        kernels: HashSet::new(),
        judged: HashSet::new(),
        progress: false,
        current: None,
        totals: wire::LimitTotals::default(),
        sent: wire::LimitTotals::default(),
    });
    WANTED.store(true, Ordering::Relaxed);
}

/// A thread that launches must not wait for this lock: it uses `try_lock`.
fn lock() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver is about to launch a kernel, whose record will arrive.
#[cold]
pub fn on_enter(cbid: u32, data: &CallbackData) {
    lifecycle::guarded((), || {
        let start = sys::now();
        if let Ok(mut state) = STATE.try_lock()
            && let Some(state) = &mut *state
            && client::is_recording()
        {
            INSIDE.set(true);
            state.enter(cbid, data, start);
            INSIDE.set(false);
        }
        launches::exclude(sys::now() - start);
    });
}

/// The driver has launched a kernel.
#[cold]
pub fn on_exit(data: &CallbackData) {
    if CURRENT.get() != data.correlation_id {
        return;
    }
    CURRENT.set(0);
    lifecycle::guarded((), || {
        let start = sys::now();
        if let Some(state) = &mut *lock() {
            state.exit(start);
        }
        launches::exclude(sys::now() - start);
    });
}

/// Counts the streams that are being captured; `cbid` is that of a call of the driver.
pub fn on_capture(cbid: u32, data: &CallbackData) {
    // SAFETY: on exit CUPTI points this at the call's result; null is checked.
    let outcome = || unsafe { data.return_value.as_ref() }.copied();
    if BEGIN_CAPTURE_CALLS.contains(&cbid) {
        // From its beginning on: if it fails, that is taken back.
        if data.site == site::ENTER {
            CAPTURES.fetch_add(1, Ordering::SeqCst);
        } else if outcome() != Some(0) {
            uncount_capture();
        }
    } else if END_CAPTURE_CALLS.contains(&cbid) && data.site == site::EXIT {
        // An invalid capture ends, too (900 to 908).
        if outcome().is_some_and(|code| code == 0 || (900..909).contains(&code)) {
            uncount_capture();
        }
    }
}

fn uncount_capture() {
    // A capture may have begun before the session.
    let _ = CAPTURES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

/// A context is about to be destroyed.
pub fn on_context_destroyed(context: *mut core::ffi::c_void) {
    if are_wanted()
        && let Some(state) = &mut *lock()
        && state.window.as_ref().is_some_and(|window| window.is_of(context))
    {
        state.close();
    }
}

/// Ends a window in which nothing was launched for a while. Called by the sender.
pub fn tick() {
    if !are_wanted() {
        return;
    }
    let due = |state: &State| state.window.as_ref().is_some_and(|window| window.age() > 2 * LONGEST_WINDOW);
    let is_due = STATE.try_lock().is_ok_and(|state| state.as_ref().is_some_and(due));
    if is_due {
        close_quietly();
    }
    if let Ok(mut state) = STATE.try_lock()
        && let Some(state) = &mut *state
    {
        state.report();
    }
}

/// Ends measuring. Called by the sender.
pub fn finish() {
    if WANTED.swap(false, Ordering::Relaxed) {
        close_quietly();
        if let Some(state) = &mut *lock() {
            state.report();
        }
    }
}

/// Ends the window while no launch is under way.
fn close_quietly() {
    let close = || {
        if let Some(state) = &mut *lock()
            && state.current.is_none()
        {
            state.close();
        }
    };
    // At the exit of a process, launches may never return: then the last values are lost.
    for _ in 0..4 {
        if gate::close_for(PATIENCE, close) {
            break;
        }
        wakeup::pause_for(PATIENCE / 10);
    }
    lifecycle::advance();
}

impl State {
    fn enter(&mut self, cbid: u32, data: &CallbackData, start: u64) {
        // SAFETY: CUPTI passes the parameters of this call.
        let Some(shape) = (unsafe { Shape::read(cbid, data) }) else { return };
        if self.current.is_some() || data.context.is_null() {
            return;
        }
        if self.began == 0 {
            self.began = start;
        }
        if self.window.as_ref().is_some_and(|window| window.is_full() || window.age() > LONGEST_WINDOW)
            && !is_captured(&shape)
        {
            launch::synchronize();
            self.close();
        }
        let allowed = CREDIT + (start - self.began) as f64 * self.percent / 100.0;
        if (self.took - self.free) as f64 > allowed {
            return;
        }
        // SAFETY: CUPTI's names end in 0.
        let name = if data.symbol_name.is_null() { c"" } else { unsafe { CStr::from_ptr(data.symbol_name) } };
        if !launch::contains(name.to_bytes(), &self.filter) {
            return;
        }
        if launch::contains(name.to_bytes(), b"nccl") || launch::contains(name.to_bytes(), b"nvshmem") {
            self.totals.communication += 1;
            return;
        }
        if self.loaded.len() < MOST_KERNELS && self.loaded.insert(shape.function()) {
            return;
        }
        let group = self.window.as_ref().map_or(self.next, Window::group);
        let key = (group, shape.key());
        if self.kernels.len() < MOST_KERNELS {
            self.kernels.insert(key.1);
        }
        if self.launches.len() >= MOST_KERNELS && !self.launches.contains_key(&key) {
            return;
        }
        let count = self.launches.entry(key).or_default();
        *count = count.saturating_add(1);
        // The powers of 8.
        if !(count.is_power_of_two() && count.trailing_zeros().is_multiple_of(3)) {
            return;
        }
        if is_captured(&shape) {
            self.totals.captured += 1;
            return;
        }
        if totals::in_flight() > 1 {
            // Another thread launches: counted, so that the next one is measured.
            *count -= 1;
            return;
        }
        self.measure(data, key.1);
    }

    /// Begins to measure a launch.
    fn measure(&mut self, data: &CallbackData, kernel: u64) {
        let Some(cupti) = library::cupti() else { return };
        let Some(profiler) = &cupti.range_profiler else { return };
        // The work before this launch would have taken its time anyway.
        launch::synchronize();
        if self.window.is_none() {
            let start = sys::now();
            match Window::open(profiler, data.context, &mut self.groups, self.next) {
                Ok(window) => {
                    self.next = (window.group() + 1) % self.groups.count().max(1);
                    self.progress = false;
                    self.window = Some(window);
                    self.took += sys::now() - start;
                    if self.free == 0 {
                        self.free = self.took;
                    }
                }
                Err(failed) => return refuse(cupti, &failed),
            }
        }
        let Some(window) = self.window.as_mut().filter(|window| window.is_of(data.context)) else { return };
        let window_group = window.group();
        let start = sys::now();
        let begun = window.begin(profiler, data.correlation_id);
        self.took += sys::now() - start;
        if begun {
            let correlation = data.correlation_id;
            RECENT[correlation as usize % RECENT.len()].store(correlation, Ordering::Relaxed);
            MEASURED.store(true, Ordering::Relaxed);
            self.announce(correlation);
            if window_group == 0 && self.judged.insert(kernel) {
                self.progress = true;
            }
            self.current = Some((correlation, totals::Begun::now()));
            CURRENT.set(correlation);
        } else {
            self.totals.lost += 1;
        }
    }

    /// Announces the values of a launch before its kernel has a record.
    fn announce(&mut self, correlation: u32) {
        let mut bytes = [0; wire::KernelCounter::SIZE];
        wire::KernelCounter { correlation, metric: ANNOUNCED, value: 0 }.encode(&mut bytes);
        if !QUEUE.append(&bytes, 0) {
            self.totals.lost += 1;
        }
    }

    /// The launch that is being measured has returned.
    fn exit(&mut self, start: u64) {
        let (Some((_, before)), Some(window)) = (self.current.take(), &mut self.window) else { return };
        if let Some(profiler) = library::cupti().and_then(|cupti| cupti.range_profiler.as_ref()) {
            // What another thread launched meanwhile was counted as well.
            let alone = totals::Begun::now().active_since(&before) == 0;
            window.end(profiler, alone);
            self.totals.measured += u64::from(alone);
            self.totals.disturbed += u64::from(!alone);
        }
        self.took += sys::now() - start;
    }

    /// Ends the window, and sends what was counted in it.
    fn close(&mut self) {
        let start = sys::now();
        let Some(profiler) = library::cupti().and_then(|cupti| cupti.range_profiler.as_ref()) else { return };
        if let Some(window) = self.window.take() {
            // Kernels without a verdict come first, as long as that helps.
            if self.kernels.len() > self.judged.len() && self.progress {
                self.next = 0;
            }
            self.totals.lost += window.close(profiler, &self.groups);
        }
        self.took += sys::now() - start;
        self.report();
    }

    /// Sends the totals, if they have changed.
    fn report(&mut self) {
        self.totals.took = self.took;
        if self.totals != self.sent {
            let mut bytes = [0; wire::LimitTotals::SIZE];
            self.totals.encode(&mut bytes);
            if QUEUE.append(&bytes, 0) {
                self.sent = self.totals;
            }
        }
    }
}

/// Whether this or another stream is being captured.
fn is_captured(shape: &Shape) -> bool {
    CAPTURES.load(Ordering::SeqCst) > 0 || launch::is_captured(shape)
}

/// Measures no more launches, and says why.
fn refuse(cupti: &Cupti, Failed(call, outcome): &Failed) {
    WANTED.store(false, Ordering::Relaxed);
    let mut notices = Notices::default();
    notices.add(Notice::NoLimits, format!("{outcome} {call}: {}", cupti.describe(*outcome)));
    notices.send();
}
