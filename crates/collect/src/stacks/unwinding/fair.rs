//! A queue in which processes take turns: one with many items does not delay the others.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use model::event::ProcessId;

/// The queue. Threads wait for its items.
pub struct Fair<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

struct Waiting<T> {
    items: HashMap<ProcessId, VecDeque<T>>,
    /// The processes that have items, the next one first.
    turns: VecDeque<ProcessId>,
    closed: bool,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        let waiting = Waiting { items: HashMap::new(), turns: VecDeque::new(), closed: false };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }
}

impl<T> Fair<T> {
    /// Adds an item of a process.
    pub fn push(&self, process: ProcessId, item: T) {
        let mut waiting = self.lock();
        let items = waiting.items.entry(process).or_default();
        items.push_back(item);
        if items.len() == 1 {
            waiting.turns.push_back(process);
        }
        self.changed.notify_one();
    }

    /// Waits for the next item. `None` once the queue is closed.
    pub fn next(&self) -> Option<T> {
        let waiting = self.changed.wait_while(self.lock(), |waiting| waiting.turns.is_empty() && !waiting.closed);
        waiting.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lets all threads end that wait for items.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Waiting<T> {
    fn take(&mut self) -> Option<T> {
        if self.closed {
            return None;
        }
        let process = self.turns.pop_front()?;
        let items = self.items.get_mut(&process)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.items.remove(&process);
        } else {
            self.turns.push_back(process);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a process with one item waits for at most one of each other, and that a closed queue has none.
    #[test]
    fn processes_take_turns() {
        let queue = Fair::default();
        for number in 0..100 {
            queue.push(ProcessId(1), number);
        }
        queue.push(ProcessId(2), 1_000);
        queue.push(ProcessId(3), 2_000);
        let first: Vec<_> = (0..5).filter_map(|_| queue.next()).collect();
        assert_eq!(first, [0, 1_000, 2_000, 1, 2]);
        queue.push(ProcessId(2), 1_001);
        assert_eq!((queue.next(), queue.next(), queue.next()), (Some(3), Some(1_001), Some(4)));
        queue.close();
        assert_eq!(queue.next(), None);
    }
}
