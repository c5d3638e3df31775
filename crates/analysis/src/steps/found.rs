//! The loops of a sequence of launches, and which of them are steps.

use model::event::{ProcessId, StackId};
use rustc_hash::FxHashMap;

use super::{
    levels::{self, Begins, Level},
    loops::{Code, Loops, Mark},
    sequence::{Pair, Sequence},
};

/// The previous launch was the last of its run.
pub const LEFT: u8 = 1;
/// A step begins.
pub const BEGINS: u8 = 2;
/// It belongs to no step, and those around it follow each other.
pub const APART: u8 = 4;

/// What was found in a sequence of launches.
#[derive(Debug)]
pub struct Found {
    /// All loops that could be steps, outer before inner.
    pub levels: Vec<Level>,
    /// Those that are, by index: at most one for each process.
    pub steps: Vec<usize>,
    loops: Loops,
    /// The number of each pair of launches.
    pub(super) numbers: FxHashMap<Pair, u32>,
    pub(super) pairs: Vec<(Pair, u64)>,
}

impl Found {
    /// Finds the loops.
    pub fn new(mut sequence: Sequence, code: &dyn Code) -> Self {
        sequence.finish();
        let loops = Loops::find(&sequence, code);
        let (levels, steps) = levels::levels(&loops, code);
        let Sequence { numbers, pairs, .. } = sequence;
        Self { levels, steps, loops, numbers, pairs }
    }

    /// Returns the iterations or calls of functions as levels, one for each process. `is` says whether the site at a depth of a
    /// stack is in such a function.
    pub fn of_functions(&self, is: &dyn Fn(ProcessId, StackId, usize) -> bool) -> Vec<Level> {
        levels::of_functions(&self.loops, &self.pairs, is)
    }

    /// Returns what a pair of launches means for some levels.
    pub(super) fn marks_of(&self, levels: &[&Level], pair: &Pair) -> u8 {
        let apart = if self.loops.leaf(pair.process, pair.to).is_none() { APART } else { 0 };
        levels.iter().fold(apart, |marks, level| marks | self.marks(level, pair))
    }

    /// Returns what a pair of launches means for a level.
    fn marks(&self, level: &Level, pair: &Pair) -> u8 {
        let Begins { loops, also, after, calls } = &level.begins;
        let mut marks = 0;
        if pair.process != level.process {
            return marks;
        }
        self.loops.marks(pair, |id, mark| {
            marks |= match mark {
                Mark::Left if loops.contains(&id) => LEFT,
                Mark::Entered if loops.contains(&id) => BEGINS,
                Mark::Next(site) if loops.contains(&id) && after.is_none_or(|after| site == after) => BEGINS,
                Mark::Next(_) if also.contains(&id) => BEGINS,
                _ => 0,
            }
        });
        if calls.is_empty() {
            return marks;
        }
        if self.loops.has_returned(pair, calls) {
            marks |= LEFT;
        }
        if self.loops.called(pair, calls).is_some() {
            marks |= BEGINS;
        }
        marks
    }
}
