//! Allocations inside PyTorch's caching allocator: `record --memory`. Its driver allocations are [`super::Call`]s.

use serde::Serialize;

use super::{ProcessId, StackId};

/// Memory of the caching allocator was given to a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tensor {
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// When.
    pub time: u64,
    /// The device, in the process's own numbering.
    pub device: u32,
    /// Its first address.
    pub address: u64,
    /// The bytes that were requested.
    pub bytes: u64,
    /// The stack that allocated it.
    pub stack: StackId,
}

/// Python begins to shut down: what it frees from now on, it frees because it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// The image.
    pub process: ProcessId,
    /// When.
    pub time: u64,
}

/// The memory of a tensor was given back to the caching allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TensorFreed {
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// When.
    pub time: u64,
    /// Its first address.
    pub address: u64,
}

/// What a process held on a device at the end of a window, and at its peak. A window has no allocations, whose order since
/// the beginning would be needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldMemory {
    /// The image.
    pub process: ProcessId,
    /// The device, in the process's own numbering.
    pub device: u32,
    /// When the window ended, or before that the process.
    pub time: u64,
    /// When most bytes were in use since the beginning.
    pub peak_time: u64,
    /// The most bytes of tensors at one time.
    pub most_tensor_bytes: u64,
    /// The most bytes taken from the driver at one time.
    pub most_held_bytes: u64,
}

/// The part of it that a stack allocated for one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryHolder {
    /// The image.
    pub process: ProcessId,
    /// The device, in the process's own numbering.
    pub device: u32,
    /// What it is used for.
    pub what: Use,
    /// The stack.
    pub stack: StackId,
    /// Bytes at the end.
    pub bytes: u64,
    /// Allocations at the end.
    pub count: u64,
    /// Bytes at the peak.
    pub peak_bytes: u64,
    /// Allocations at the peak.
    pub peak_count: u64,
}

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Tensors, and other blocks of the caching allocator.
    Tensor,
    /// Free memory that the caching allocator keeps.
    Cached,
    /// Driver allocations outside the caching allocator.
    Other,
}

impl Use {
    /// All uses, by number.
    pub const ALL: [Self; 3] = [Self::Tensor, Self::Cached, Self::Other];

    /// Returns the use with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tensors",
            Self::Cached => "cached",
            Self::Other => "other",
        }
    }
}
