//! The timeline of a stream, on which its operations follow one another.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of operations that a stream holds before a launch blocks, as on real hardware.
pub const DEPTH: usize = 1024;

/// The time from which a stream is free, and the ends of its last [`DEPTH`] operations.
#[derive(Debug)]
pub struct Timeline {
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

impl Timeline {
    /// Creates the timeline of an idle stream.
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

    /// Adds an operation whose times are known. Nothing else may be added meanwhile.
    pub fn occupy(&self, start: u64, end: u64) -> Slot {
        self.free.fetch_max(end, Ordering::AcqRel);
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

impl Default for Timeline {
    fn default() -> Self {
        Self::new()
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
        let timeline = Timeline::new();
        assert_eq!(timeline.reserve(100, 3), Slot { start: 100, end: 103, room: 0 });
        assert_eq!(timeline.reserve(102, 3), Slot { start: 103, end: 106, room: 0 });
        assert_eq!(timeline.reserve(109, 3), Slot { start: 109, end: 112, room: 0 });
        assert_eq!(timeline.free_at(), 112);
    }

    /// A full stream has space when its oldest operation ends.
    #[test]
    fn depth_is_bounded() {
        let timeline = Timeline::new();
        for n in 0..DEPTH as u64 {
            assert_eq!(timeline.reserve(1000, 10).end, 1010 + 10 * n);
        }
        assert_eq!(timeline.reserve(1000, 10).room, 1010);
        assert_eq!(timeline.reserve(1000, 10).room, 1020);
    }

    /// Waiting for an event delays the next start, and never advances it.
    #[test]
    fn waits_for_events() {
        let timeline = Timeline::new();
        timeline.wait_for(500);
        timeline.wait_for(400);
        assert_eq!(timeline.reserve(100, 1).start, 500);
    }

    /// Threads that share a stream never get overlapping slots.
    #[test]
    fn threads_get_separate_slots() {
        let timeline = Timeline::new();
        let mut slots: Vec<Slot> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..5000).map(|_| timeline.reserve(7, 3)).collect::<Vec<_>>())).collect();
            threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
        });
        slots.sort_by_key(|s| s.start);
        assert!(slots.windows(2).all(|w| w[0].end == w[1].start));
        assert_eq!(slots.len(), 20_000);
    }
}
