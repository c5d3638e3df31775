//! The energy that GPUs consume: `record --energy`.

use super::Uuid;

/// A reading of a GPU's energy counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Energy {
    /// The GPU; if it is partitioned, the whole of it.
    pub gpu: Uuid,
    /// When it was read.
    pub time: u64,
    /// Millijoules since the driver was loaded.
    pub millijoules: u64,
}
