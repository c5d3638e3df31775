//! Steps: the iterations of the loop that a program spends its launches in, found from outside.
//!
//! A training or decoding loop launches from the same places again and again. The order of the stacks of a thread's launches
//! shows where control went back: [`loops`] explains how. No annotation, time or statistics is needed, so a program without a
//! loop has no steps, and the steps of one with a loop begin exactly at the first launch of each iteration.
//!
//! ```text
//!   sequence   which stack followed which, while launches are read
//!   tree       call sites; graph: the loops among the sites of one function; loops: of all
//!   levels     which of the loops are the steps
//!   cut        the steps as intervals, while launches are read again
//!   code       the call sites of recorded stacks, and their names
//!   summary    how long they take
//!   measure    the work of steps; find: all of this, from the events of a recording
//! ```

mod code;
mod cut;
mod find;
mod graph;
mod levels;
mod loops;
mod measure;
mod sequence;
mod summary;
mod tree;

#[cfg(test)]
mod tests;

use model::event::{ProcessId, StackId};
use rustc_hash::FxHashMap;

pub use code::is_function;
pub use cut::{Cut, Cutter};
pub use find::{Choice, find};
pub use levels::Level;
pub use loops::Code;
use loops::Loops;
use sequence::Pair;
pub use sequence::Sequence;
pub use summary::{Slowest, StepLevel, StepSummary, warm_up_of};
pub use tree::Site;

/// What was found in a sequence of launches.
#[derive(Debug)]
pub struct Found {
    /// All loops that could be steps, outer before inner.
    pub levels: Vec<Level>,
    /// Those that are, by index: at most one for each process.
    pub steps: Vec<usize>,
    loops: Loops,
    numbers: FxHashMap<Pair, u32>,
    pairs: Vec<(Pair, u64)>,
}

impl Found {
    /// Finds the loops.
    pub fn new(sequence: Sequence, code: &dyn Code) -> Self {
        let loops = Loops::find(&sequence, code);
        let (levels, steps) = levels::levels(&loops);
        let Sequence { numbers, pairs, .. } = sequence;
        Self { levels, steps, loops, numbers, pairs }
    }

    /// Returns the iterations or calls of functions as levels, one for each process. `is` tells whether the site at a depth of a
    /// stack is in such a function.
    pub fn of_functions(&self, is: &dyn Fn(ProcessId, StackId, usize) -> bool) -> Vec<Level> {
        levels::of_functions(&self.loops, &self.pairs, is)
    }
}
