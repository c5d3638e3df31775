//! The threads that Python's `threading` started, and who started them.
//!
//! Native threads are not shown in this way. They usually belong to a pool (OpenMP, BLAS, XLA, autograd): the line that
//! happened to start it did not cause its work. `concurrent.futures` starts its threads in `submit()`. A later
//! `submit()` only puts work into a queue, and which thread takes it is not observed: the thread stays under the call
//! that started it, and no line outside the boundary is named as its cause. At most 8 threads that started each other
//! are shown below each other.

use std::collections::HashMap;

use model::{
    budget::Budget,
    event::{NamedFrame, ProcessId, StackId},
};

use super::boundary::split;

/// Running threads whose creator is remembered: of a process, and of all.
const THREADS: (u64, u64) = (1 << 15, 1 << 16);
/// The most threads that start each other and appear under each other.
const MAX_CHAIN: u32 = 8;

/// Who started each running thread.
pub struct Creators {
    images: HashMap<ProcessId, HashMap<u32, Creator>>,
    room: Budget,
}

struct Creator {
    stack: StackId,
    chain: u32,
}

impl Default for Creators {
    fn default() -> Self {
        Self { images: HashMap::new(), room: Budget::new(THREADS.0, THREADS.1) }
    }
}

impl Creators {
    /// Adds a thread; `stack` is that of the thread that started it, if it is known. Thread ids are reused.
    pub fn started(&mut self, image: ProcessId, tid: u32, creator: u32, stack: Option<StackId>) {
        self.ended(image, tid);
        let chain = self.of_thread(image, creator).map_or(1, |creator| creator.chain + 1);
        let Some(stack) = stack.filter(|_| chain <= MAX_CHAIN) else { return };
        if self.room.take(image, 1) {
            self.images.entry(image).or_default().insert(tid, Creator { stack, chain });
        }
    }

    /// Handles the end of a thread.
    pub fn ended(&mut self, image: ProcessId, tid: u32) {
        if self.images.get_mut(&image).is_some_and(|threads| threads.remove(&tid).is_some()) {
            self.room.give_back(image, 1);
        }
    }

    /// Handles the end of an image.
    pub fn died(&mut self, image: ProcessId) {
        self.images.remove(&image);
        self.room.give_back_all(image);
    }

    /// Returns the stack that started a thread.
    pub fn of(&self, image: ProcessId, tid: u32) -> Option<StackId> {
        self.of_thread(image, tid).map(|creator| creator.stack)
    }

    fn of_thread(&self, image: ProcessId, tid: u32) -> Option<&Creator> {
        self.images.get(&image)?.get(&tid)
    }

    /// Returns how many threads there was no room for.
    pub fn refused(&self) -> u64 {
        self.room.refused()
    }
}

/// Whether these Python frames, innermost first, are those of a thread that `threading` started.
pub fn is_thread(frames: &[NamedFrame]) -> bool {
    let outermost = frames.last().and_then(split);
    outermost.is_some_and(|(function, line)| function == "_bootstrap" && line.starts_with("threading.py:"))
}

#[cfg(test)]
mod tests {
    use model::event::FrameKind;

    use super::*;

    const IMAGE: ProcessId = ProcessId(3);

    /// Check that a thread id that is used again has its new creator, or none.
    #[test]
    fn thread_ids_are_reused() {
        let mut creators = Creators::default();
        creators.started(IMAGE, 11, 10, Some(StackId(1)));
        assert_eq!((creators.of(IMAGE, 11), creators.of(ProcessId(4), 11)), (Some(StackId(1)), None));
        creators.started(IMAGE, 11, 10, Some(StackId(2)));
        assert_eq!(creators.of(IMAGE, 11), Some(StackId(2)));
        creators.started(IMAGE, 11, 10, None);
        assert_eq!(creators.of(IMAGE, 11), None);
    }

    /// Check that chains do not grow without limit.
    #[test]
    fn chains_are_bounded() {
        let mut creators = Creators::default();
        for tid in 1..20 {
            creators.started(IMAGE, tid + 1, tid, Some(StackId(tid.into())));
        }
        assert!(creators.of(IMAGE, MAX_CHAIN + 1).is_some() && creators.of(IMAGE, MAX_CHAIN + 2).is_none());
    }

    /// Check that a running thread, and the second thread with an id, keep their creators however many others start and end.
    #[test]
    fn running_threads_are_kept() {
        let mut creators = Creators::default();
        creators.started(IMAGE, 7, 1, Some(StackId(70)));
        creators.started(IMAGE, 8, 1, Some(StackId(80)));
        creators.started(IMAGE, 8, 1, Some(StackId(81)));
        for tid in 100..100 + 2 * THREADS.1 as u32 {
            creators.started(IMAGE, tid, 1, Some(StackId(1)));
            creators.ended(IMAGE, tid);
        }
        assert_eq!((creators.of(IMAGE, 7), creators.of(IMAGE, 8)), (Some(StackId(70)), Some(StackId(81))));
        assert_eq!((creators.images[&IMAGE].len(), creators.refused()), (2, 0));
    }

    /// Check that the number of running threads is limited, that those without room are counted, and that the end of a process makes
    /// room.
    #[test]
    fn creators_are_bounded() {
        let mut creators = Creators::default();
        for tid in 0..2 * THREADS.0 as u32 {
            creators.started(IMAGE, tid, 1, Some(StackId(1)));
        }
        assert_eq!((creators.images[&IMAGE].len() as u64, creators.refused()), (THREADS.0, THREADS.0));
        creators.died(IMAGE);
        creators.started(IMAGE, 9, 1, Some(StackId(1)));
        assert_eq!(creators.images[&IMAGE].len(), 1);
    }

    /// Check that only threads of Python's `threading` are recognised.
    #[test]
    fn threads_are_recognised_by_their_outermost_function() {
        let frame = |name: &str| NamedFrame { kind: FrameKind::Python, name: name.into(), module: "".into() };
        for name in ["Thread._bootstrap (threading.py:1014)", "_bootstrap (threading.py:890)"] {
            assert!(is_thread(&[frame("work (train.py:4)"), frame(name)]));
        }
        assert!(!is_thread(&[frame("_bootstrap (threading.py:890)"), frame("<module> (train.py:4)")]));
        assert!(!is_thread(&[]));
    }
}
