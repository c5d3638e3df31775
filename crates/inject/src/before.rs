//! Tells the records of launches that began before the session from its own.
//!
//! A launch that was already in the driver when CUPTI's callbacks were enabled was not seen, but it has a record if records are
//! enabled before it returns. Correlation ids grow, so its id is less than that of the first launch that was seen:
//!
//! ```text
//!   launch 7   [====================]      a record, but not of this session
//!   callbacks        | enabled
//!   records              | enabled
//!   launch 8                 [=====]       the first one
//! ```
//!
//! An id is taken a moment before the callback, so 8 may have been seen although 7, on another thread, was not in the driver yet: then
//! 7 is seen later, and becomes the first.

use core::sync::atomic::{AtomicU64, Ordering};

/// The session began with the process: there are none from before.
const NONE: u64 = u64::MAX;
/// No launch has been seen yet.
const WAITING: u64 = u64::MAX - 1;

/// The id of the first launch, or one of these.
static FIRST: AtomicU64 = AtomicU64::new(NONE);

/// A new session, in which nothing is from before.
pub fn forget() {
    FIRST.store(NONE, Ordering::SeqCst);
}

/// The session begins in a process that may launch already. When it goes on after a pause, nothing changes.
pub fn begin() {
    let _ = FIRST.compare_exchange(NONE, WAITING, Ordering::SeqCst, Ordering::SeqCst);
}

/// Called at the beginning of every launch of the session.
#[inline]
pub fn saw(id: u32) {
    let first = FIRST.load(Ordering::Relaxed);
    if first != NONE && is_less(id, first) {
        lower(id);
    }
}

#[cold]
fn lower(id: u32) {
    let earlier = |first| (first != NONE && is_less(id, first)).then_some(u64::from(id));
    let _ = FIRST.fetch_update(Ordering::SeqCst, Ordering::SeqCst, earlier);
}

/// Whether a record is that of a launch from before the session. Not for graphs: CUPTI 13.0 may give them wrong ids.
#[inline]
pub fn has(id: u32, graph: u32) -> bool {
    let first = FIRST.load(Ordering::SeqCst);
    first != NONE && graph == 0 && is_less(id, first)
}

/// Whether an id is less than the first one; ids wrap.
fn is_less(id: u32, first: u64) -> bool {
    u32::try_from(first).is_err() || id.wrapping_sub(first as u32).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that records are told apart by the least id that was seen, that ids wrap, and that a session that began with the
    /// process has no record from before.
    #[test]
    fn ids_before_the_first_are_not_of_the_session() {
        let before = |ids: &[u32]| ids.iter().map(|id| has(*id, 0)).collect::<Vec<_>>();
        saw(5);
        assert_eq!(before(&[1, 5]), [false, false]);
        begin();
        assert_eq!(before(&[1, 5]), [true, true]);
        saw(u32::MAX - 1);
        saw(3);
        begin();
        assert_eq!(before(&[u32::MAX - 2, u32::MAX - 1, u32::MAX, 1, 3]), [true, false, false, false, false]);
        saw(u32::MAX - 2);
        assert_eq!((before(&[u32::MAX - 2, u32::MAX - 3]), has(u32::MAX - 3, 9)), (vec![false, true], false));
        forget();
        assert_eq!(before(&[7]), [false]);
    }
}
