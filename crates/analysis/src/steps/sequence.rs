//! The order of a program's launches, in memory that grows with distinct stacks: which stack followed which, in each thread.

use model::event::{Launch, ProcessId, StackId};
use rustc_hash::FxHashMap;

use super::{
    order::{Next, Order},
    threads::Threads,
};

/// The most different successions. A program with more has no loop that anyone would recognise.
const MOST_PAIRS: usize = 1 << 20;
/// The launches of a thread that are kept in order, and those of all threads: enough to see how loops run.
const KEPT: (usize, usize) = (1 << 20, 1 << 23);

/// A stack, and the one that was launched before it in the same thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The process.
    pub process: ProcessId,
    /// The one before; absent for the first of a thread.
    pub from: Option<StackId>,
    /// The stack.
    pub to: StackId,
}

/// What is known of the order of launches.
#[derive(Debug, Default)]
pub struct Sequence {
    order: Order,
    threads: Threads<Thread>,
    pub(super) numbers: FxHashMap<Pair, u32>,
    /// In the order of their first occurrence, with their number.
    pub(super) pairs: Vec<(Pair, u64)>,
    kept: usize,
    is_full: bool,
}

#[derive(Debug, Default)]
struct Thread {
    last: Option<StackId>,
    kept: Vec<u32>,
}

impl Sequence {
    /// Adds a launch.
    #[inline]
    pub fn push(&mut self, launch: &Launch) {
        if launch.stack.0 == 0 || launch.stack.is_placeholder() {
            return;
        }
        if let Some(next) = self.order.push(launch) {
            self.add(next);
        }
    }

    /// Adds the launches that wait for earlier ones: there are no more.
    pub(super) fn finish(&mut self) {
        for next in std::mem::take(&mut self.order).finish() {
            self.add(next);
        }
    }

    #[inline]
    fn add(&mut self, Next { process, tid, stack, .. }: Next) {
        let thread = self.threads.get(process, tid);
        let pair = Pair { process, from: thread.last.replace(stack), to: stack };
        let next = self.pairs.len();
        let number = match self.numbers.get(&pair) {
            Some(number) => *number,
            None if next >= MOST_PAIRS => {
                self.is_full = true;
                return;
            }
            None => {
                self.pairs.push((pair, 0));
                *self.numbers.entry(pair).or_insert(next as u32)
            }
        };
        self.pairs[number as usize].1 += 1;
        if thread.kept.len() < KEPT.0 && self.kept < KEPT.1 {
            thread.kept.push(number);
            self.kept += 1;
        }
    }

    /// Whether launches follow each other in too many ways to be understood.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the first launches of each thread, as numbers of pairs.
    pub(super) fn kept(&self) -> impl Iterator<Item = &[u32]> {
        self.threads.all().iter().map(|thread| &thread.kept[..])
    }
}
