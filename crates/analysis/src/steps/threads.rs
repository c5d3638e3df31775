//! Something of each thread.

use model::event::ProcessId;
use rustc_hash::FxHashMap;

/// Something of each thread, of which the last one used is found at once.
#[derive(Debug, Default)]
pub struct Threads<T> {
    numbers: FxHashMap<(ProcessId, u32), usize>,
    all: Vec<T>,
    last: Option<((ProcessId, u32), usize)>,
}

impl<T: Default> Threads<T> {
    /// Returns that of a thread, a new one if it has none yet.
    #[inline]
    pub fn get(&mut self, process: ProcessId, tid: u32) -> &mut T {
        let key = (process, tid);
        let number = match self.last {
            Some((last, number)) if last == key => number,
            _ => {
                let next = self.all.len();
                let number = *self.numbers.entry(key).or_insert(next);
                if number == next {
                    self.all.push(T::default());
                }
                self.last = Some((key, number));
                number
            }
        };
        &mut self.all[number]
    }

    /// Returns all, in the order in which threads first appeared.
    pub fn all(&self) -> &[T] {
        &self.all
    }

    /// The same, without the threads.
    pub fn into_all(self) -> impl Iterator<Item = T> {
        self.all.into_iter()
    }
}
