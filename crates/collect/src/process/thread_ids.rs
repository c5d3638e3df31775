//! Translates thread ids of processes in their own pid namespaces, as in containers.
//!
//! The injected library sends the ids that its process knows. The probes see both ids of every thread of a followed process
//! when it begins, and its end; for processes that were running before, `/proc` has them. So a thread that has ended
//! is known too, and an id that was used again belongs to the thread that had it at the time.

use std::collections::{HashMap, VecDeque};

use model::event::ProcessId;

/// The most threads of one process that are running, and that have ended.
const MOST_RUNNING: usize = 65_536;
const MOST_ENDED: usize = 4_096;
/// The most processes that have ended, and the most of their threads: their last messages may not have been read yet.
const MOST_ENDED_PROCESSES: usize = 4_096;
const MOST_LEFT: usize = 65_536;

/// The threads of all processes in their own pid namespaces.
#[derive(Debug, Default)]
pub struct ThreadIds {
    images: HashMap<ProcessId, Threads>,
    /// Images that have ended, oldest first.
    ended: VecDeque<ProcessId>,
    /// The number of threads of these.
    left: usize,
}

/// A thread: since when, and its id in our namespace; 0 if it has none there.
type Thread = (u64, u32);

/// The threads of one image, by their own ids.
#[derive(Debug, Default)]
struct Threads {
    running: HashMap<u32, Thread>,
    /// Oldest first.
    ended: VecDeque<(u32, Thread)>,
}

impl Threads {
    fn len(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    fn end(&mut self, inner: u32) {
        self.ended.extend(self.running.remove(&inner).map(|thread| (inner, thread)));
        self.ended.drain(..self.ended.len().saturating_sub(MOST_ENDED));
    }

    /// Returns the thread that had an id at a time. The time may be a little too early.
    fn at(&self, inner: u32, time: u64) -> Option<u32> {
        let ended = self.ended.iter().filter(|(id, _)| *id == inner).map(|(_, thread)| thread);
        let had_it = || ended.clone().chain(self.running.get(&inner));
        let last = had_it().filter(|(since, _)| *since <= time).max_by_key(|(since, _)| *since);
        last.or_else(|| had_it().min_by_key(|(since, _)| *since)).map(|(_, outer)| *outer)
    }
}

impl ThreadIds {
    /// Adds a thread that began or that was found, with the id that it knows itself by; 0 if that is the same.
    pub fn began(&mut self, image: ProcessId, inner: u32, outer: u32, time: u64) {
        if inner == 0 {
            return;
        }
        let threads = self.images.entry(image).or_default();
        // It may only have got another name.
        if threads.running.get(&inner).is_some_and(|(_, known)| *known == outer) {
            return;
        }
        threads.end(inner);
        if threads.running.len() < MOST_RUNNING {
            threads.running.insert(inner, (time, outer));
        }
    }

    /// Handles the end of a thread.
    pub fn ended(&mut self, image: ProcessId, inner: u32) {
        if let Some(threads) = self.images.get_mut(&image) {
            threads.end(inner);
        }
    }

    /// Handles the end of an image.
    pub fn died(&mut self, image: ProcessId) {
        let Some(threads) = self.images.get(&image).filter(|_| !self.ended.contains(&image)) else { return };
        self.left += threads.len();
        self.ended.push_back(image);
        // The oldest ones lose their threads first: that they have their own namespace remains known for longer.
        let mut oldest = self.ended.iter();
        while self.left > MOST_LEFT
            && let Some(image) = oldest.next()
        {
            let threads = self.images.get_mut(image).map(std::mem::take).unwrap_or_default();
            self.left -= threads.len();
        }
        while self.ended.len() > MOST_ENDED_PROCESSES {
            let threads = self.ended.pop_front().and_then(|image| self.images.remove(&image));
            self.left -= threads.map_or(0, |threads| threads.len());
        }
    }

    /// Returns the id in our namespace of the thread that had this id in its own at this time; `None` if it is unknown. `renamed`: the
    /// process has another id than we see, so it has its own namespace even if none of its threads is known.
    pub fn outer(&self, image: ProcessId, renamed: bool, tid: u32, time: u64) -> Option<u32> {
        match self.images.get(&image) {
            Some(threads) => threads.at(tid, time),
            None => (!renamed).then_some(tid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: ProcessId = ProcessId(7);

    /// Check that ids are translated only where they differ, and that an id that was used again belongs to the thread that had it
    /// at the time, also after that has ended.
    #[test]
    fn ids_belong_to_the_thread_that_had_them() {
        let mut ids = ThreadIds::default();
        ids.began(ProcessId(1), 0, 100, 5);
        let outer = |ids: &ThreadIds, inner, time| ids.outer(IMAGE, true, inner, time);
        assert_eq!(ids.outer(ProcessId(1), false, 100, 9), Some(100));
        assert_eq!(ids.outer(ProcessId(1), true, 100, 9), None);
        ids.began(IMAGE, 1, 500, 10);
        ids.began(IMAGE, 4, 504, 20);
        ids.ended(IMAGE, 4);
        // The end of this one was lost.
        ids.began(IMAGE, 4, 604, 30);
        ids.began(IMAGE, 4, 704, 40);
        // It got another name.
        ids.began(IMAGE, 4, 704, 50);
        let at = |time| outer(&ids, 4, time);
        assert_eq!([at(15), at(25), at(35), at(45), at(55)].map(Option::unwrap), [504, 504, 604, 704, 704]);
        assert_eq!((outer(&ids, 1, 60), outer(&ids, 500, 60)), (Some(500), None));
        ids.died(IMAGE);
        assert_eq!((outer(&ids, 4, 25), outer(&ids, 4, 45)), (Some(504), Some(704)));
    }

    /// Check that what is kept of threads and processes that have ended is limited, and that no unknown id passes for one of
    /// ours.
    #[test]
    fn what_is_kept_is_limited() {
        let mut ids = ThreadIds::default();
        ids.began(IMAGE, 1, 1001, 0);
        for inner in 2..2 * MOST_ENDED as u32 {
            ids.began(IMAGE, inner, 1000 + inner, inner.into());
            ids.ended(IMAGE, inner);
        }
        assert_eq!(ids.images[&IMAGE].len(), MOST_ENDED + 1);
        assert_eq!([1, 2].map(|inner| ids.outer(IMAGE, false, inner, 9)), [Some(1001), None]);
        ids.died(IMAGE);
        ids.died(IMAGE);
        for image in (100..).take(2 * MOST_ENDED_PROCESSES).map(ProcessId) {
            for inner in 1..100 {
                ids.began(image, inner, image.0 + inner, 0);
            }
            ids.died(image);
            assert_eq!(ids.left, ids.ended.iter().map(|image| ids.images[image].len()).sum::<usize>());
            assert!(ids.left <= MOST_LEFT && ids.images.len() <= MOST_ENDED_PROCESSES);
            assert_eq!(ids.outer(image, false, 3, 1), Some(image.0 + 3));
        }
        assert!(!ids.images.contains_key(&IMAGE));
        assert_eq!(ids.outer(ids.ended[0], false, 3, 1), None);
    }
}
