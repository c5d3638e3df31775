//! The open ranges of each thread, and the reports about them.
//!
//! Ranges may begin before the session, which begins with CUDA: a path gets its number when it is first needed. A range
//! that also ends before is not reported.
//!
//! At each launch the innermost open range of the thread is reported with the launch's correlation id, so the GPU work
//! of a range is exact, whatever the order in which records arrive. Each distinct path is sent once, and is part of the
//! key by which GPU time is summed. CPU samples have no range.
//!
//! Locks are taken with a time limit: in a forked child, a lock may be held by a thread that exists only in the parent.
//!
//! | resource | limit | beyond it |
//! | --- | --- | --- |
//! | paths | 12,288 | numbers in new names become `#`, so that `step 1`, `step 2`, ... share a path |
//! | paths | 16,384, 4 MiB | the range is not reported, and is counted |
//! | a name; a domain's or category's | 128 bytes; 32 bytes | truncated |
//! | open ranges of a thread | 64 | deeper ones are not reported |
//! | strings, domains, categories | 4,096, 256, 1,024 | no name; the default domain; no category |
//! | ranges that any thread may end | 1,024 | not reported |

use core::cell::RefCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Mutex;

use super::label::Label;
use super::registry::{SHORT, lock, with_names};
use super::text::{NAME, Name};
use crate::names::{Named, Names};
use crate::queue::QUEUE;
use crate::totals::{TOTALS, add};
use crate::{clock, lifecycle, sys};

/// The maximum number of open ranges of a thread, and of those that any thread may end.
const DEPTH: usize = 64;
const STARTED: usize = 1024;
/// The maximum number of paths, and the bytes of their names. Beyond the first limit, numbers in names are replaced, so
/// that `step 1`, `step 2`, ... share the rest.
const EXACT_PATHS: usize = 12_288;
const PATHS: usize = 16_384;
const PATH_BYTES: usize = 4 << 20;

/// A range that a thread has begun and not ended.
struct Open {
    label: Label,
    start: u64,
    /// The path of the innermost range that is reported: this one or one around it.
    path: u32,
    /// Whether this range has a path.
    reported: bool,
}

/// The open ranges of a thread.
struct Stack {
    open: Vec<Open>,
    /// How many of them have been given a path, outermost first.
    resolved: usize,
    /// The number of ranges beyond [`DEPTH`], within the others.
    beyond: usize,
}

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack { open: Vec::new(), resolved: 0, beyond: 0 }) };
}

/// A path is the number of the path around it, a category and a name.
static PATHS_SEEN: Names = Names::new(PATHS, PATH_BYTES);
static BEGUN: Mutex<Option<Begun>> = Mutex::new(None);

/// Ranges that any thread may end, with their start.
type Begun = HashMap<u64, (Label, u64)>;

static NEXT: AtomicU64 = AtomicU64::new(1);
/// Whether NVTX's functions were replaced.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// From now on launches are reported with their range.
pub fn activate() {
    ACTIVE.store(true, Ordering::Relaxed);
}

/// Whether ranges are recorded.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Reports the path that a launch belongs to, if there is one.
#[inline]
pub fn on_launch(correlation: u32) {
    if !ACTIVE.load(Ordering::Relaxed) {
        return;
    }
    let path = with_stack(0, Stack::path);
    if path != 0 {
        let mut bytes = [0; wire::RangedLaunch::SIZE];
        wire::RangedLaunch { correlation, path }.encode(&mut bytes);
        send(&bytes);
    }
}

/// Uses the thread's stack. There is none while the thread ends.
fn with_stack<T: Copy>(otherwise: T, body: impl FnOnce(&mut Stack) -> T) -> T {
    STACK.try_with(|stack| stack.try_borrow_mut().map_or(otherwise, |mut stack| body(&mut stack))).unwrap_or(otherwise)
}

impl Stack {
    /// Returns the path of the innermost range that is reported; 0 if there is none.
    fn path(&mut self) -> u32 {
        if self.resolved < self.open.len() && lifecycle::is_live() {
            for at in self.resolved..self.open.len() {
                let around = at.checked_sub(1).map_or(0, |at| self.open[at].path);
                let own = path(around, &self.open[at].label);
                self.open[at].reported = own != 0;
                self.open[at].path = if own == 0 { around } else { own };
            }
            self.resolved = self.open.len();
        }
        self.open.last().map_or(0, |open| open.path)
    }

    /// Returns the number of open ranges of a domain.
    fn level(&self, domain: usize) -> c_int {
        (self.open.iter().filter(|open| open.label.domain == domain).count() + self.beyond) as c_int
    }
}

fn send(message: &[u8]) {
    if !QUEUE.append(message, 1) {
        add(&TOTALS.dropped_queue_full, 1);
    }
}

/// Sends a finished range, or a mark.
fn report(path: u32, start: u64, end: u64, mark: bool) {
    let offset = clock::offset();
    // SAFETY: no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let mut bytes = [0; wire::Range::SIZE];
    let range =
        wire::Range { path, tid, start: start.wrapping_sub(offset), end: end.wrapping_sub(offset), mark: mark.into() };
    range.encode(&mut bytes);
    send(&bytes);
}

/// Returns the number of a path in a session that is live; 0 if there are too many.
fn path(around: u32, label: &Label) -> u32 {
    let intern = |name: &Name, most: usize| {
        with_names(label.domain, label.category, |domain, category| {
            let mut bytes = [0_u8; 4 + 1 + SHORT + SHORT + 1 + NAME];
            let mut length = 0;
            let separator: &[u8] = if domain.is_empty() { b"" } else { b":" };
            for part in
                [&around.to_le_bytes()[..], &[category.len() as u8], category, domain, separator, name.as_bytes()]
            {
                bytes[length..length + part.len()].copy_from_slice(part);
                length += part.len();
            }
            let send = |message: &[u8]| QUEUE.append(message, 0);
            PATHS_SEEN.intern_within(most, &bytes[..length], wire::encode_range_name, send)
        })
    };
    let named = match intern(&label.name, EXACT_PATHS) {
        Named::Full => intern(&label.name.without_digits(), PATHS),
        named => named,
    };
    match named {
        Named::Id(id) => id,
        Named::Full | Named::Unsent => {
            add(&TOTALS.nameless, 1);
            0
        }
    }
}

/// Begins a range of the thread. Returns its level, from 0.
pub fn push_range(label: Label) -> c_int {
    lifecycle::guarded(0, || {
        with_stack(0, |stack| {
            let level = stack.level(label.domain);
            if stack.beyond > 0 || stack.open.len() >= DEPTH || stack.open.try_reserve(1).is_err() {
                stack.beyond += 1;
            } else {
                stack.open.push(Open { label, start: sys::now(), path: 0, reported: false });
            }
            level
        })
    })
}

/// Ends the innermost range of a domain: ranges of different domains need not be nested. Returns its level, or -1 if
/// there is none.
pub fn pop_range(domain: usize) -> c_int {
    lifecycle::guarded(-1, || {
        with_stack(-1, |stack| {
            if stack.beyond > 0 {
                stack.beyond -= 1;
                return stack.level(domain);
            }
            let Some(at) = stack.open.iter().rposition(|open| open.label.domain == domain) else { return -1 };
            stack.path();
            let ended = stack.open.remove(at);
            // The ranges within it, of other domains, are no longer in it.
            stack.resolved = stack.resolved.min(at);
            if ended.reported && lifecycle::is_live() {
                report(ended.path, ended.start, sys::now(), false);
            }
            stack.level(domain)
        })
    })
}

/// Sets a mark.
pub fn set_mark(label: Label) {
    lifecycle::guarded((), || {
        if !lifecycle::is_live() {
            return;
        }
        let path = path(with_stack(0, Stack::path), &label);
        if path != 0 {
            let now = sys::now();
            report(path, now, now, true);
        }
    });
}

/// Begins a range that any thread may end. It has no thread, so launches do not belong to it.
pub fn start_range(label: Label) -> u64 {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    lifecycle::guarded((), || {
        let Some(mut begun) = lock(&BEGUN) else { return };
        let begun = begun.get_or_insert_with(HashMap::new);
        if begun.len() < STARTED && begun.try_reserve(1).is_ok() {
            begun.insert(id, (label, sys::now()));
        }
    });
    id
}

/// Ends such a range.
pub fn end_range(id: u64) {
    lifecycle::guarded((), || {
        let ended = lock(&BEGUN).and_then(|mut begun| begun.as_mut()?.remove(&id));
        if let Some((label, start)) = ended.filter(|_| lifecycle::is_live()) {
            let path = path(0, &label);
            if path != 0 {
                report(path, start, sys::now(), false);
            }
        }
    });
}
