//! Steps: the iterations of the loop that a program spends its launches in, found from outside.
//!
//! A training or decoding loop launches from the same places again and again. The order of the stacks of a thread's launches
//! shows where control went back: [`loops`] explains how. No annotation, time or statistics is needed, so a program without a
//! loop has no steps, and the steps of one with a loop begin exactly at the first launch of each iteration.
//!
//! ```text
//!   threads    something of each; order: launches as their thread made them; sequence: which stack followed which, while launches are read
//!   tree       call sites; graph: the loops among the sites of one function; loops: of all
//!   levels     which of the loops are the steps
//!   cut        the steps as intervals, while launches are read again
//!   code       the call sites of recorded stacks, and their names
//!   summary    how long they take
//!   measured   which of them count
//!   parts      what GPUs did in some steps; outliers: why these took longer than others
//!   measure    the work of steps; find: all of this, from the events of a recording
//! ```

mod code;
mod cut;
mod find;
mod found;
mod graph;
mod levels;
mod loops;
mod measure;
mod measured;
mod order;
mod outliers;
mod parts;
mod sequence;
mod summary;
mod threads;
mod tree;

#[cfg(test)]
mod tests;

pub use code::is_function;
pub use cut::{Cut, Cutter};
pub use find::{Choice, find};
pub use found::Found;
pub use levels::Level;
pub use loops::Code;
pub(crate) use measured::median;
pub use measured::{measured_of, percentile, warm_up_of};
pub(crate) use outliers::busiest;
pub use outliers::explain;
pub(crate) use parts::parts;
pub use sequence::Sequence;
pub use summary::{Slowest, StepLevel, StepOutlier, StepSummary};
pub use tree::Site;
