//! Launches that a session's threads report by themselves: the reading side of [`wire::launches`].
//!
//! The process may write anything at any time. The position is kept here, and a slot is copied before it is used. The file
//! has a fixed size, so that reading it cannot fail.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use wire::launches::{ABANDONED, BYTES, Header, Launch, SLOTS, Slot, free, offset, written};

use crate::shared_memory::SharedMemory;

/// How long a claimed slot is waited for, and with it all later ones.
const PATIENCE: Duration = Duration::from_secs(1);

/// The memory of one session.
pub struct Launches {
    memory: SharedMemory<Header>,
    /// The place that is read next.
    next: u64,
    /// A place that was claimed and not written, and since when.
    awaited: Option<(u64, Instant)>,
}

impl Launches {
    /// Creates empty memory.
    pub fn new() -> io::Result<Self> {
        let memory = SharedMemory::<Header>::new(c"warpscope-launches", BYTES)?;
        Ok(Self { memory, next: 0, awaited: None })
    }

    /// Returns the file for the process to map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// Passes on up to `most` launches, in the order in which they were claimed, up to the first that is not written yet.
    /// Returns their number.
    pub fn read(&mut self, most: usize, each: &mut dyn FnMut(Launch)) -> usize {
        (0..most).take_while(|_| self.read_next(each)).count()
    }

    /// Passes on all launches of a process that writes no more. Threads may have ended while they wrote: returns how many launches
    /// are lost.
    pub fn read_rest(&mut self, each: &mut dyn FnMut(Launch)) -> u64 {
        // SAFETY: the header is at the start of the mapping.
        let claimed = unsafe { self.memory.start().as_ref() }.next.load(Ordering::Relaxed);
        let mut lost = 0;
        for _ in 0..SLOTS {
            if !self.read_next(each) {
                lost += u64::from(self.next < claimed && self.slot().state.load(Ordering::Relaxed) == free(self.next));
                self.next += 1;
            }
        }
        let abandoned = |place: &u64| self.slot_of(*place).state.load(Ordering::Relaxed) == ABANDONED;
        lost + (0..SLOTS as u64).filter(abandoned).count() as u64
    }

    fn slot_of(&self, place: u64) -> &Slot {
        // SAFETY: the slot of any place is within the mapping, and all of it is atomic.
        unsafe { self.memory.start().byte_add(offset(place)).cast::<Slot>().as_ref() }
    }

    fn slot(&self) -> &Slot {
        self.slot_of(self.next)
    }

    /// Whether a thread has claimed the next place.
    fn is_claimed(&self) -> bool {
        // SAFETY: the header is at the start of the mapping.
        unsafe { self.memory.start().as_ref() }.next.load(Ordering::Relaxed) > self.next
    }

    /// Passes on the next launch; false if there is none yet.
    fn read_next(&mut self, each: &mut dyn FnMut(Launch)) -> bool {
        // As often as there are slots: a process that claims that all are abandoned is not followed for ever.
        for _ in 0..SLOTS {
            let state = self.slot().state.load(Ordering::Acquire);
            let claimed = self.is_claimed();
            // One of an earlier lap: its thread was slow, and others have passed over the slot.
            let late = state % 2 == 1 && state < written(self.next);
            if state == written(self.next) || late {
                each(Launch::decode(std::array::from_fn(|at| self.slot().words[at].load(Ordering::Relaxed))));
                let passed = !late || claimed;
                let place = if passed { self.next + SLOTS as u64 } else { self.next };
                self.slot().state.store(free(place), Ordering::Release);
                self.next += u64::from(passed);
                return true;
            }
            if !claimed || !(state == ABANDONED || self.is_overdue() && self.abandon()) {
                return false;
            }
            self.next += 1;
        }
        false
    }

    /// Whether the next place was claimed long ago.
    fn is_overdue(&mut self) -> bool {
        match self.awaited {
            Some((place, since)) if place == self.next => since.elapsed() > PATIENCE,
            _ => {
                self.awaited = Some((self.next, Instant::now()));
                false
            }
        }
    }

    /// Abandons the next place; false if it has been written meanwhile.
    fn abandon(&self) -> bool {
        let slot = self.slot();
        slot.state.compare_exchange(free(self.next), ABANDONED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Launches {
        /// Writes a launch as the injected library does, or only claims its place.
        fn claim(&self, correlation: u32, whole: bool) {
            // SAFETY: as in `is_claimed`.
            let place = unsafe { self.memory.start().as_ref() }.next.fetch_add(1, Ordering::Relaxed);
            let slot = self.slot_of(place);
            assert_eq!(slot.state.load(Ordering::Acquire), free(place));
            let launch = Launch {
                correlation,
                work: 1,
                tid: 2,
                cpu: 3,
                cause: 4,
                time: 5,
                stack: 6,
                python: 7,
                previous: 8,
                took: 9,
            };
            for (to, word) in slot.words.iter().zip(launch.encode()) {
                to.store(word, Ordering::Relaxed);
            }
            if whole {
                slot.state.store(written(place), Ordering::Release);
            }
        }

        fn take(&mut self, most: usize) -> Vec<u32> {
            let mut taken = Vec::new();
            self.read(most, &mut |launch| taken.push(launch.correlation));
            taken
        }
    }

    /// Check that launches are read once and in order, over several laps.
    #[test]
    fn launches_are_read_in_order() {
        let mut launches = Launches::new().unwrap();
        assert!(launches.take(9).is_empty());
        for lap in 0..3 {
            for correlation in 0..SLOTS as u32 {
                launches.claim(lap + correlation, true);
            }
            assert_eq!(launches.take(2), [lap, lap + 1]);
            assert_eq!(launches.take(usize::MAX).len(), SLOTS - 2);
        }
    }

    /// Check that a launch that is not written yet delays the later ones, and no longer after the process has ended. It is lost.
    #[test]
    fn unwritten_launches_are_skipped_at_the_end() {
        let mut launches = Launches::new().unwrap();
        for (correlation, whole) in [(1, true), (2, false), (3, true)] {
            launches.claim(correlation, whole);
        }
        assert_eq!(launches.take(9), [1]);
        let mut rest = Vec::new();
        let lost = launches.read_rest(&mut |launch| rest.push(launch.correlation));
        assert_eq!((rest, lost), (vec![3], 1));
    }

    /// Check that a launch whose thread has ended delays the later ones only for a while, over several laps, and that it is read if
    /// it is written after all.
    #[test]
    fn abandoned_slots_are_passed_over() {
        let mut launches = Launches::new().unwrap();
        for (correlation, whole) in [(1, true), (2, false), (3, true)] {
            launches.claim(correlation, whole);
        }
        assert_eq!(launches.take(9), [1]);
        let (place, since) = launches.awaited.expect("a place");
        launches.awaited = Some((place, since - 2 * PATIENCE));
        assert_eq!(launches.take(9), [3]);
        let claim = |launches: &Launches, count: u32| {
            for correlation in 0..count {
                // SAFETY: as in `is_claimed`.
                let next = unsafe { &launches.memory.start().as_ref().next };
                let slot = launches.slot_of(next.load(Ordering::Relaxed));
                if slot.state.load(Ordering::Relaxed) == ABANDONED {
                    next.fetch_add(1, Ordering::Relaxed);
                }
                launches.claim(correlation, true);
            }
        };
        for _ in 0..3 {
            claim(&launches, SLOTS as u32 - 1);
            assert_eq!(launches.take(usize::MAX).len(), SLOTS - 1);
        }
        // The thread was only slow: its launch is read when its slot has its turn, which is free again then.
        launches.slot_of(1).state.store(written(1), Ordering::Release);
        claim(&launches, SLOTS as u32 - 2);
        let taken = launches.take(usize::MAX);
        assert_eq!((taken.len(), taken.last()), (SLOTS - 1, Some(&2)));
        claim(&launches, SLOTS as u32);
        assert_eq!(launches.take(usize::MAX).len(), SLOTS);
        assert_eq!(launches.read_rest(&mut |_| {}), 0);
    }
}
