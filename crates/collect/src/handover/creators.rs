//! The threads that Python's `threading` started, and who started them.

use std::collections::{HashMap, VecDeque};

use model::event::{NamedFrame, ProcessId, StackId};

use super::boundary::split;

/// The most threads that are remembered.
const MAX_THREADS: usize = 1 << 16;
/// The most threads that start each other and appear under each other.
const MAX_CHAIN: u32 = 8;

/// Who started each thread.
#[derive(Default)]
pub struct Creators {
    threads: HashMap<(ProcessId, u32), Creator>,
    /// The keys of `threads`, oldest first; some may be gone.
    order: VecDeque<(ProcessId, u32)>,
}

struct Creator {
    stack: StackId,
    chain: u32,
}

impl Creators {
    /// Adds a thread; `stack` is that of the thread that started it, if it is known. Thread ids are reused.
    pub fn started(&mut self, image: ProcessId, tid: u32, creator: u32, stack: Option<StackId>) {
        self.threads.remove(&(image, tid));
        let chain = self.threads.get(&(image, creator)).map_or(1, |creator| creator.chain + 1);
        let Some(stack) = stack.filter(|_| chain <= MAX_CHAIN) else { return };
        self.threads.insert((image, tid), Creator { stack, chain });
        self.order.push_back((image, tid));
        if self.order.len() > MAX_THREADS
            && let Some(oldest) = self.order.pop_front()
        {
            self.threads.remove(&oldest);
        }
    }

    /// Returns the stack that started a thread.
    pub fn of(&self, image: ProcessId, tid: u32) -> Option<StackId> {
        self.threads.get(&(image, tid)).map(|creator| creator.stack)
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

    /// Check that neither chains nor the number of threads grow without limit.
    #[test]
    fn creators_are_bounded() {
        let mut creators = Creators::default();
        for tid in 1..20 {
            creators.started(IMAGE, tid + 1, tid, Some(StackId(tid.into())));
        }
        assert!(creators.of(IMAGE, MAX_CHAIN + 1).is_some() && creators.of(IMAGE, MAX_CHAIN + 2).is_none());
        for tid in 100..100 + 2 * MAX_THREADS as u32 {
            creators.started(IMAGE, tid, 1, Some(StackId(1)));
        }
        assert_eq!((creators.threads.len(), creators.order.len()), (MAX_THREADS, MAX_THREADS));
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
