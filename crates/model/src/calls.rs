//! The calls of a trace: what each did, how they are nested, and their sums.

mod amounts;
mod changes;
mod facts;
mod memory;
mod names;
mod nesting;
mod slowest;
mod sums;
#[cfg(test)]
mod tests;
mod tier;

pub use amounts::{CallSum, Moved, Switches, ThreadSum};
pub use changes::{MemoryChange, MemoryChanges, MemoryOperation};
pub(crate) use facts::known;
pub use facts::{captured, command, facts, is_error};
pub use memory::Spaces;
pub(crate) use memory::{Accounts, Allocated, Change, Place};
pub use names::{KernelNames, SeenHandle};
pub use nesting::{Nesting, Placed};
pub use slowest::Slowest;
pub use sums::Calls;
pub use tier::{Tier, TierSum};

pub use crate::event::Memory;
