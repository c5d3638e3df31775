//! Events: times on the timelines of streams.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{behind, status};

/// An event: a time on a stream's timeline.
#[derive(Debug)]
pub struct Event {
    magic: u64,
    /// Its id in records.
    pub id: u32,
    /// Its time; 0 if it was never recorded.
    pub time: AtomicU64,
}

const MAGIC: u64 = 0x7773_6576_6e74;

impl Event {
    /// Creates an event, as a `CUevent`.
    pub fn create() -> *mut c_void {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Box::into_raw(Box::new(Event { magic: MAGIC, id, time: AtomicU64::new(0) })).cast()
    }

    /// Returns the event of a `CUevent`.
    pub fn from_handle<'a>(handle: *mut c_void) -> Result<&'a Event, u32> {
        // SAFETY: the program got the handle from `create` and has not destroyed it.
        let event = unsafe { behind::<Event>(handle) }?;
        if event.magic == MAGIC { Ok(event) } else { Err(status::INVALID_HANDLE) }
    }

    /// Destroys an event.
    pub fn destroy(handle: *mut c_void) -> Result<(), u32> {
        Self::from_handle(handle)?;
        // SAFETY: it is an event from `create`, and the program no longer uses it.
        drop(unsafe { Box::from_raw(handle.cast::<Event>()) });
        Ok(())
    }
}
