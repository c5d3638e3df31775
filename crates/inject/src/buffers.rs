//! The buffers into which CUPTI writes activity records, and the handling of completed buffers.
//!
//! CUPTI 13 requests a buffer for every thread that launches, so memory is bounded in two steps: 32 large buffers of 1
//! MiB (about 4,700 kernels each), which is all that most programs ever use, then 512 small ones of 64 KiB for programs
//! with very many threads. Together that is 64 MiB, reserved once; untouched pages cost nothing, and the lowest free
//! buffer is used first. Beyond that, requests are refused and counted. CUPTI before API version 27 (CUDA 12.9) may
//! crash on a refusal, so there each further buffer is mapped separately and unmapped when CUPTI returns it, up to another
//! 64 MiB.
//!
//! CUPTI returns a buffer to the functions that were registered last, no matter who provided it. So these functions also serve
//! other clients ([`crate::client`]): each buffer goes back to its owner.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::client;
use crate::cost;
use crate::library;
use crate::lifecycle;
use crate::records::{self, Tally};
use crate::sys;
use crate::totals::{TOTALS, add};
use crate::wakeup;

const LARGE: usize = 1 << 20;
const LARGE_COUNT: usize = 32;
const SMALL: usize = 64 << 10;
const SMALL_COUNT: usize = 512;
const POOL: usize = LARGE * LARGE_COUNT + SMALL * SMALL_COUNT;

/// The first `CUPTI_API_VERSION` that handles a refused buffer request.
const MAY_REFUSE: u32 = 27;

/// A fixed, lock-free set of buffers of two sizes.
struct Pool {
    memory: AtomicPtr<u8>,
    /// One bit per buffer, set while CUPTI has it. The first word covers the large buffers.
    used: [AtomicU64; 1 + SMALL_COUNT / 64],
}

static BUFFERS: Pool = Pool::new();
/// Buffers that were mapped separately.
static EXTRA: [AtomicPtr<u8>; MOST_EXTRA] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST_EXTRA];
const MOST_EXTRA: usize = 1024;
/// Buffers that CUPTI currently holds.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Threads that are currently reading a returned buffer.
static READERS: AtomicU32 = AtomicU32::new(0);

impl Pool {
    const fn new() -> Self {
        Self { memory: AtomicPtr::new(ptr::null_mut()), used: [const { AtomicU64::new(0) }; 1 + SMALL_COUNT / 64] }
    }

    fn prepare(&self) -> bool {
        if self.memory.load(Ordering::Acquire).is_null() {
            self.memory.store(sys::reserve(POOL), Ordering::Release);
        }
        !self.memory.load(Ordering::Acquire).is_null()
    }

    /// Returns a free buffer and its size.
    fn take(&self) -> Option<(*mut u8, usize)> {
        let memory = self.memory.load(Ordering::Acquire);
        if memory.is_null() {
            return None;
        }
        for (word, used) in self.used.iter().enumerate() {
            let all = if word == 0 { (1 << LARGE_COUNT) - 1 } else { u64::MAX };
            let mut seen = used.load(Ordering::Relaxed);
            while seen != all {
                let bit = seen.trailing_ones();
                match used.compare_exchange_weak(seen, seen | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        let (offset, size) = Self::place(word, bit as usize);
                        // SAFETY: every offset is within the reserved memory.
                        return Some((unsafe { memory.add(offset) }, size));
                    }
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    /// Returns the pages of all free buffers to the kernel.
    fn discard(&self) {
        let mut taken = [ptr::null_mut(); LARGE_COUNT + SMALL_COUNT];
        for place in &mut taken {
            let Some((buffer, size)) = self.take() else { break };
            // SAFETY: the buffer is taken, so nobody else uses it.
            unsafe { sys::discard(buffer, size) };
            *place = buffer;
        }
        taken.iter().take_while(|buffer| !buffer.is_null()).for_each(|buffer| {
            self.give_back(*buffer);
        });
    }

    const fn place(word: usize, bit: usize) -> (usize, usize) {
        if word == 0 { (bit * LARGE, LARGE) } else { (LARGE * LARGE_COUNT + ((word - 1) * 64 + bit) * SMALL, SMALL) }
    }

    fn contains(&self, buffer: *mut u8) -> bool {
        (buffer as usize).wrapping_sub(self.memory.load(Ordering::Acquire) as usize) < POOL
    }

    /// Returns a buffer to the pool; false if it does not belong to the pool.
    fn give_back(&self, buffer: *mut u8) -> bool {
        let offset = (buffer as usize).wrapping_sub(self.memory.load(Ordering::Acquire) as usize);
        let (word, bit) = match offset {
            0..POOL if offset < LARGE * LARGE_COUNT => (0, offset / LARGE),
            0..POOL => {
                let small = (offset - LARGE * LARGE_COUNT) / SMALL;
                (1 + small / 64, small % 64)
            }
            _ => return false,
        };
        self.used[word].fetch_and(!(1 << bit), Ordering::Release);
        true
    }
}

/// Reserves the memory, once; false if the kernel refuses.
pub(crate) fn prepare() -> bool {
    BUFFERS.prepare()
}

/// Returns the memory of all buffers that CUPTI does not hold to the kernel.
pub(crate) fn discard() {
    BUFFERS.discard();
}

/// Whether CUPTI holds a buffer.
pub(crate) fn any_live() -> bool {
    LIVE.load(Ordering::Relaxed) != 0
}

/// Whether a thread is reading a returned buffer.
pub(crate) fn any_reader() -> bool {
    READERS.load(Ordering::SeqCst) != 0
}

/// Maps a buffer of its own; null if there are too many, or the kernel refuses.
fn map_extra() -> *mut u8 {
    let null = ptr::null_mut();
    let buffer = sys::reserve(SMALL);
    let place =
        |place: &AtomicPtr<u8>| place.compare_exchange(null, buffer, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if buffer.is_null() || EXTRA.iter().any(place) {
        return buffer;
    }
    // SAFETY: just mapped, and known to nobody else.
    unsafe { sys::unreserve(buffer, SMALL) };
    null
}

/// Unmaps a buffer from [`map_extra`]; false if it is none.
fn unmap_extra(buffer: *mut u8) -> bool {
    let null = ptr::null_mut();
    let known = EXTRA.iter().any(|place| {
        place.load(Ordering::Relaxed) == buffer
            && place.compare_exchange(buffer, null, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    if known {
        // SAFETY: it was mapped with this size, and CUPTI has returned it.
        unsafe { sys::unreserve(buffer, SMALL) };
    }
    known
}

/// Whether a buffer is ours.
fn is_ours(buffer: *mut u8) -> bool {
    BUFFERS.contains(buffer) || EXTRA.iter().any(|place| place.load(Ordering::Relaxed) == buffer)
}

/// CUPTI requests a buffer. It gets one even after the session has ended, because it may crash without one.
///
/// # Safety
/// Each pointer must be writable.
pub unsafe extern "C" fn on_requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    if !client::is_recording()
        && let Some((requested, _)) = client::buffer_functions()
    {
        // SAFETY: another client has registered the function for this purpose.
        unsafe { requested(buffer, size, most_records) };
        return;
    }
    lifecycle::guarded((), || {
        let (at, bytes) = BUFFERS.take().unwrap_or_else(|| {
            let refusing = library::cupti_version() >= MAY_REFUSE;
            let extra = if refusing { ptr::null_mut() } else { map_extra() };
            if extra.is_null() {
                add(&TOTALS.buffers_refused, 1);
                (extra, 0)
            } else {
                (extra, SMALL)
            }
        });
        if !at.is_null() {
            LIVE.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: CUPTI passes pointers to variables of its own; 0 records means as many as fit.
        unsafe {
            *buffer = at;
            *size = bytes;
            *most_records = 0;
        }
    });
}

/// CUPTI returns a buffer with `valid` bytes of records.
///
/// # Safety
/// `buffer` must come from [`on_requested`], and `context` and `stream` from CUPTI.
pub unsafe extern "C" fn on_completed(context: *mut c_void, stream: u32, buffer: *mut u8, size: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if !lifecycle::guarded(true, || is_ours(buffer)) {
        if let Some((_, completed)) = client::buffer_functions() {
            // SAFETY: another client has registered the function for this purpose, and provided the buffer.
            unsafe { completed(context, stream, buffer, size, valid) };
        }
        return;
    }
    lifecycle::guarded((), || {
        // The reader count is raised before the session state is read: the sender first ends the session and then waits
        // for readers, so it misses none.
        READERS.fetch_add(1, Ordering::SeqCst);
        if lifecycle::is_reading()
            && let Some(cupti) = library::cupti()
        {
            let begun = (!wakeup::is_sender()).then(sys::now);
            let tally = lifecycle::guarded(Tally::unreadable(), || {
                // SAFETY: the buffer is ours again and holds `valid` bytes of records.
                unsafe { records::read(cupti.next_record, buffer, valid.min(size)) }
            });
            tally.add_to_totals();
            // The sender's own CPU time is counted as a whole.
            if let Some(begun) = begun {
                cost::count_reading(begun);
            }
            let mut dropped = 0;
            // SAFETY: context and stream are as CUPTI passed them; no lock is held.
            if unsafe { (cupti.dropped_records)(context, stream, &mut dropped) } == 0 {
                add(&TOTALS.dropped_by_cupti, dropped as u64);
            }
        }
        READERS.fetch_sub(1, Ordering::SeqCst);
        lifecycle::advance();
        let _ = BUFFERS.give_back(buffer) || unmap_extra(buffer);
        LIVE.fetch_sub(1, Ordering::Relaxed);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Every buffer is handed out once, aligned and without overlap; the total size is bounded; returned buffers are
    /// reused.
    #[test]
    fn the_pool_is_bounded_and_reused() {
        let pool = Pool::new();
        assert!(pool.take().is_none(), "no memory yet");
        assert!(pool.prepare());
        let mut all = Vec::new();
        while let Some(buffer) = pool.take() {
            all.push(buffer);
        }
        assert_eq!(all.len(), LARGE_COUNT + SMALL_COUNT);
        assert_eq!(all.iter().map(|(_, size)| size).sum::<usize>(), 64 << 20);
        let mut sorted = all.clone();
        sorted.sort();
        for pair in sorted.windows(2) {
            assert!(pair[0].0 as usize + pair[0].1 <= pair[1].0 as usize);
        }
        assert!(all.iter().all(|(at, _)| (*at as usize).is_multiple_of(4096)));
        for index in [540, 3, 100] {
            assert!(pool.give_back(all[index].0));
        }
        assert_eq!(pool.take(), Some(all[3]));
        assert_eq!(pool.take(), Some(all[100]));
        assert_eq!(pool.take(), Some(all[540]));
        assert!(!pool.give_back(ptr::dangling_mut()));
    }

    /// Threads that take and return buffers concurrently never hold the same one.
    #[test]
    fn concurrent_threads_never_share_a_buffer() {
        let pool = Pool::new();
        assert!(pool.prepare());
        let held = std::sync::Mutex::new(HashSet::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        let (at, _) = pool.take().unwrap();
                        assert!(held.lock().unwrap().insert(at as usize));
                        assert!(held.lock().unwrap().remove(&(at as usize)));
                        assert!(pool.give_back(at));
                    }
                });
            }
        });
        assert!(pool.used.iter().all(|w| w.load(Ordering::Relaxed) == 0));
    }
}
