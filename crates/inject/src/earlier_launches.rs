//! Identifies the records of launches that began before the session, which are not part of it.
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
//! 7 is seen later, and becomes the first. Ids wrap, so they are compared only while they are close to the first one: after
//! [`CLOSE`] others, every launch from before has returned.

use core::sync::atomic::{AtomicU64, Ordering};

/// Nothing is from before.
const NONE: u64 = u64::MAX;
/// No launch has been seen yet.
const WAITING: u64 = u64::MAX - 1;
/// How far ids may be from the first one: minutes at a million CUDA calls per second.
const CLOSE: u32 = 1 << 28;

/// The id of the first launch, or one of these.
static FIRST: AtomicU64 = AtomicU64::new(NONE);

/// A new session, in which nothing is from before.
pub fn forget() {
    FIRST.store(NONE, Ordering::SeqCst);
}

/// The session begins in a process that may launch already.
pub fn begin() {
    FIRST.store(WAITING, Ordering::SeqCst);
}

/// Called at the beginning of every launch of the session.
#[inline]
pub fn note_launch(id: u32) {
    let first = FIRST.load(Ordering::Relaxed);
    if first != NONE && (first == WAITING || id.wrapping_sub(first as u32) > CLOSE) {
        update(id);
    }
}

#[cold]
fn update(id: u32) {
    let _ = FIRST.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |first| match first {
        NONE => None,
        WAITING => Some(id.into()),
        _ if is_less(id, first) => Some(id.into()),
        _ if id.wrapping_sub(first as u32) > CLOSE => Some(NONE),
        _ => None,
    });
}

/// Whether a record is that of a launch from before the session. Not for graphs: CUPTI 13.0 may give them wrong ids.
#[inline]
pub fn has(id: u32, graph: u32) -> bool {
    match FIRST.load(Ordering::SeqCst) {
        NONE => false,
        first => graph == 0 && (first == WAITING || is_less(id, first)),
    }
}

/// Whether an id is less than the first one, and close to it.
fn is_less(id: u32, first: u64) -> bool {
    (1..=CLOSE).contains(&(first as u32).wrapping_sub(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that records before the first launch that was seen are recognised, also if ids wrap; that a session that began with the
    /// process has none; and that none are found later, when ids have come around.
    #[test]
    fn records_before_the_first_launch_are_recognised() {
        let before = |ids: &[u32]| ids.iter().map(|id| has(*id, 0)).collect::<Vec<_>>();
        note_launch(5);
        assert_eq!(before(&[1, 5]), [false, false]);
        begin();
        assert_eq!(before(&[1, 5]), [true, true]);
        note_launch(u32::MAX - 1);
        note_launch(3);
        assert_eq!(before(&[u32::MAX - 2, u32::MAX - 1, u32::MAX, 1, 3]), [true, false, false, false, false]);
        note_launch(u32::MAX - 2);
        assert_eq!((before(&[u32::MAX - 2, u32::MAX - 3]), has(u32::MAX - 3, 9)), (vec![false, true], false));
        note_launch(CLOSE - 4);
        assert_eq!(before(&[u32::MAX - 3, u32::MAX - 2]), [true, false]);
        note_launch(CLOSE);
        assert_eq!(before(&[u32::MAX - 3, u32::MAX - 2, 1 << 31, 0]), [false; 4]);
        note_launch(1 << 31);
        assert_eq!(before(&[(1 << 31) - 1, 1 << 31]), [false; 2]);
        forget();
        assert_eq!(before(&[7]), [false]);
    }
}
