//! Streams and events: each stream has its own timeline, on which its operations follow one another.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::context::{self, Context};
use super::graph::Graph;
use super::{behind, status};
use crate::sys;

/// The number of operations that a stream holds before a launch blocks, as on real hardware.
pub const DEPTH: usize = 1024;

/// The time from which a stream is free, and the ends of its last [`DEPTH`] operations.
#[derive(Debug)]
pub struct Clock {
    free: AtomicU64,
    count: AtomicU64,
    ends: Box<[AtomicU64]>,
}

/// A slot on a stream's timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When the operation starts.
    pub start: u64,
    /// When it ends.
    pub end: u64,
    /// When the queue has space for it: the launching call returns no earlier.
    pub room: u64,
}

impl Clock {
    /// Creates the clock of an idle stream.
    pub fn new() -> Self {
        Self {
            free: AtomicU64::new(0),
            count: AtomicU64::new(0),
            ends: (0..DEPTH).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Adds an operation with this duration to the stream.
    pub fn reserve(&self, now: u64, duration: u64) -> Slot {
        let mut free = self.free.load(Ordering::Relaxed);
        let (start, end) = loop {
            let start = now.max(free);
            let end = start + duration;
            match self.free.compare_exchange_weak(free, end, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break (start, end),
                Err(changed) => free = changed,
            }
        };
        let at = self.count.fetch_add(1, Ordering::Relaxed) as usize % DEPTH;
        let room = self.ends[at].swap(end, Ordering::Relaxed);
        Slot { start, end, room }
    }

    /// Returns when the work so far is done.
    pub fn free_at(&self) -> u64 {
        self.free.load(Ordering::Acquire)
    }

    /// Delays further operations until `time`.
    pub fn wait_for(&self, time: u64) {
        self.free.fetch_max(time, Ordering::AcqRel);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// A stream; never freed.
#[derive(Debug)]
pub struct Stream {
    magic: u64,
    id: AtomicU32,
    /// Its context.
    pub context: &'static Context,
    /// Its timeline.
    pub clock: Clock,
    capturing: AtomicBool,
    capture: Mutex<Option<Box<Graph>>>,
}

const MAGIC: u64 = 0x7773_7374_726d;
/// `CU_STREAM_LEGACY`
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;

/// Returns the stream that the `_ptsz` functions use for the null stream.
pub fn per_thread(stream: *mut c_void) -> *mut c_void {
    if stream.is_null() { std::ptr::without_provenance_mut(PER_THREAD) } else { stream }
}

impl Stream {
    /// Creates a stream that is never freed.
    pub fn leak(id: u32, context: &'static Context) -> &'static Stream {
        Box::leak(Box::new(Stream {
            magic: MAGIC,
            id: AtomicU32::new(id),
            context,
            clock: Clock::new(),
            capturing: AtomicBool::new(false),
            capture: Mutex::new(None),
        }))
    }

    /// Reuses a destroyed stream.
    pub fn revive(&self, id: u32) {
        self.id.store(id, Ordering::Relaxed);
    }

    /// Returns its id in records.
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Returns the `CUstream`.
    pub fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the stream of a `CUstream`, which may be null or one of the two special handles.
    pub fn from_handle(handle: *mut c_void) -> Result<&'static Stream, u32> {
        match handle.addr() {
            0 | LEGACY => Ok(context::current()?.default_stream()),
            PER_THREAD => Ok(context::current()?.thread_stream()),
            _ => {
                // SAFETY: the program got the handle from us; streams are never freed.
                let stream = unsafe { behind::<Stream>(handle) }?;
                if stream.magic == MAGIC { Ok(stream) } else { Err(status::INVALID_HANDLE) }
            }
        }
    }

    fn capture(&self) -> MutexGuard<'_, Option<Box<Graph>>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether launches are captured into a graph.
    #[inline]
    pub fn capturing(&self) -> bool {
        self.capturing.load(Ordering::Relaxed)
    }

    /// Starts capturing launches into a new graph.
    pub fn begin_capture(&self) -> Result<(), u32> {
        let mut capture = self.capture();
        if capture.is_some() {
            return Err(status::ILLEGAL_STATE);
        }
        *capture = Some(Graph::new());
        self.capturing.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the capture.
    pub fn end_capture(&self) -> Result<Box<Graph>, u32> {
        self.capturing.store(false, Ordering::Relaxed);
        self.capture().take().ok_or(status::ILLEGAL_STATE)
    }

    /// Calls `work` with the graph being captured, if any.
    pub fn with_capture<R>(&self, work: impl FnOnce(&mut Graph) -> R) -> Option<R> {
        self.capture().as_deref_mut().map(work)
    }

    /// Waits for the stream's work.
    pub fn synchronize(&self) {
        sys::wait_until(self.clock.free_at());
    }
}

/// An event: a time on a stream's timeline.
#[derive(Debug)]
pub struct Event {
    magic: u64,
    /// Its id in records.
    pub id: u32,
    /// Its time; 0 if it was never recorded.
    pub time: AtomicU64,
}

const EVENT_MAGIC: u64 = 0x7773_6576_6e74;

impl Event {
    /// Creates an event, as a `CUevent`.
    pub fn create() -> *mut c_void {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Box::into_raw(Box::new(Event { magic: EVENT_MAGIC, id, time: AtomicU64::new(0) })).cast()
    }

    /// Returns the event of a `CUevent`.
    pub fn from_handle<'a>(handle: *mut c_void) -> Result<&'a Event, u32> {
        // SAFETY: the program got the handle from `create` and has not destroyed it.
        let event = unsafe { behind::<Event>(handle) }?;
        if event.magic == EVENT_MAGIC { Ok(event) } else { Err(status::INVALID_HANDLE) }
    }

    /// Destroys an event.
    pub fn destroy(handle: *mut c_void) -> Result<(), u32> {
        Self::from_handle(handle)?;
        // SAFETY: it is an event from `create`, and the program no longer uses it.
        drop(unsafe { Box::from_raw(handle.cast::<Event>()) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // launches  a b      c
    // stream    aaabbb___ccc        (_ idle)
    //           0  3  6  9  12
    /// Operations follow one another, and start at once on an idle stream.
    #[test]
    fn operations_follow_one_another() {
        let clock = Clock::new();
        assert_eq!(clock.reserve(100, 3), Slot { start: 100, end: 103, room: 0 });
        assert_eq!(clock.reserve(102, 3), Slot { start: 103, end: 106, room: 0 });
        assert_eq!(clock.reserve(109, 3), Slot { start: 109, end: 112, room: 0 });
        assert_eq!(clock.free_at(), 112);
    }

    /// A full stream has space when its oldest operation ends.
    #[test]
    fn depth_is_bounded() {
        let clock = Clock::new();
        for n in 0..DEPTH as u64 {
            assert_eq!(clock.reserve(1000, 10).end, 1010 + 10 * n);
        }
        assert_eq!(clock.reserve(1000, 10).room, 1010);
        assert_eq!(clock.reserve(1000, 10).room, 1020);
    }

    /// Waiting for an event delays the next start, and never advances it.
    #[test]
    fn waits_for_events() {
        let clock = Clock::new();
        clock.wait_for(500);
        clock.wait_for(400);
        assert_eq!(clock.reserve(100, 1).start, 500);
    }

    /// Threads that share a stream never get overlapping slots.
    #[test]
    fn threads_get_separate_slots() {
        let clock = Clock::new();
        let mut slots: Vec<Slot> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..5000).map(|_| clock.reserve(7, 3)).collect::<Vec<_>>())).collect();
            threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
        });
        slots.sort_by_key(|s| s.start);
        assert!(slots.windows(2).all(|w| w[0].end == w[1].start));
        assert_eq!(slots.len(), 20_000);
    }
}
