//! Allocations inside PyTorch's caching allocator: `record --memory`. Its driver allocations are [`super::Call`]s.

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
