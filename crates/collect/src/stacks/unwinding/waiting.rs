//! Stacks that arrive as raw memory.

use bpf::RawStack;
use unwind::Ended;

/// A stack walked in user space.
pub struct Walked {
    /// As it was taken.
    pub raw: RawStack,
    /// User addresses, innermost first.
    pub user: Vec<u64>,
    /// Why the walk ended.
    pub ended: Ended,
}

/// A raw stack that waits for tables.
pub struct Waiting {
    pub raw: RawStack,
    /// The round in which it arrived.
    pub arrived: u64,
    /// How often it was walked, and how many jobs had finished the last time.
    pub tries: usize,
    pub seen: u64,
}
