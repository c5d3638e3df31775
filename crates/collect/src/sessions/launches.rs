//! Launches that a session's threads report by themselves: the reading side of [`wire::launches`].
//!
//! The process may write anything at any time. The position is kept here, and a slot is copied before it is used. The file
//! has a fixed size, so that reading it cannot fail.

use std::{io, os::fd::BorrowedFd, sync::atomic::Ordering};

use wire::launches::{BYTES, Header, Launch, SLOTS, Slot, free, offset, written};

use crate::shared_memory::SharedMemory;

/// The memory of one session.
pub struct Launches {
    memory: SharedMemory<Header>,
    /// The place that is read next.
    next: u64,
}

impl Launches {
    /// Creates empty memory.
    pub fn new() -> io::Result<Self> {
        let memory = SharedMemory::<Header>::new(c"warpscope-launches", BYTES)?;
        Ok(Self { memory, next: 0 })
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

    /// Passes on all launches of a process that writes no more. Threads may have ended while they wrote.
    pub fn read_rest(&mut self, each: &mut dyn FnMut(Launch)) {
        for _ in 0..SLOTS {
            if !self.read_next(each) {
                self.next += 1;
            }
        }
    }

    fn read_next(&mut self, each: &mut dyn FnMut(Launch)) -> bool {
        // SAFETY: the slot of any place is within the mapping, and all of it is atomic.
        let slot = unsafe { self.memory.start().byte_add(offset(self.next)).cast::<Slot>().as_ref() };
        if slot.state.load(Ordering::Acquire) != written(self.next) {
            return false;
        }
        each(Launch::decode(std::array::from_fn(|at| slot.words[at].load(Ordering::Relaxed))));
        slot.state.store(free(self.next + SLOTS as u64), Ordering::Release);
        self.next += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Launches {
        /// Writes a launch as the injected library does, or only claims its place.
        fn claim(&self, correlation: u32, whole: bool) {
            // SAFETY: as in `read_next`.
            let place = unsafe { self.memory.start().as_ref() }.next.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as above.
            let slot = unsafe { self.memory.start().byte_add(offset(place)).cast::<Slot>().as_ref() };
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

    /// Check that a launch that is not written yet delays the later ones, and no longer after the process has ended.
    #[test]
    fn unwritten_launches_are_skipped_at_the_end() {
        let mut launches = Launches::new().unwrap();
        for (correlation, whole) in [(1, true), (2, false), (3, true)] {
            launches.claim(correlation, whole);
        }
        assert_eq!(launches.take(9), [1]);
        let mut rest = Vec::new();
        launches.read_rest(&mut |launch| rest.push(launch.correlation));
        assert_eq!(rest, [3]);
    }
}
