//! GPU memory: who holds it when it peaks, and at the end.
//!
//! Two sources describe it. Driver allocations ([`crate::event::Call`]s of `cudaMalloc` and similar functions) follow the
//! rules of [`cuda::memory`]. Tensors are allocations inside PyTorch's caching allocator, which takes large segments from
//! the driver and divides them into blocks:
//!
//! ```text
//!   driver   |------------- segment, 20 MiB -------------|   |-- another library's allocation --|
//!   tensors  |## 3 MiB ##|         |###### 7 MiB ######|
//!   use       tensor      cached    tensor              cached  other
//! ```
//!
//! - A driver allocation in which a tensor was placed is a **segment**. Its bytes belong to the tensors in it; the rest is
//!   cached: it is free, but only for PyTorch.
//! - Every other driver allocation is **other**: of another library, or of the program itself.
//! - Whether an allocation is a segment is decided by the next thing that its thread does with memory: it places a tensor
//!   there, or it does not. Until then it does not count, unless its process has had no tensor at all.
//! - **In use** are tensors and other memory. The **peak** of a process on a device is when most bytes were in use there.
//!
//! A tensor holds a whole block, as `torch.cuda.memory_allocated()` counts it ([`blocks`]). Events must be in the order in
//! which the allocator made them: one that was freed may have the same address as the next one.

pub(crate) mod blocks;
mod book;
mod sums;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

pub(crate) use self::book::Book;
use crate::event::{ProcessId, StackId};

/// The GPU memory of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuMemory {
    /// By process and the process's own number of the device.
    pub devices: BTreeMap<(ProcessId, u32), DeviceMemory>,
    /// What was counted.
    pub counts: Counts,
}

/// The memory of one process on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// When most bytes were in use.
    pub peak: Moment,
    /// At the end: when Python begins to shut down, otherwise when the process or the recording ends.
    pub end: Moment,
    /// The most bytes of tensors at one time.
    pub most_tensor_bytes: u64,
    /// The most bytes taken from the driver at one time.
    pub most_held_bytes: u64,
}

/// Who held memory at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// When; 0 if there was no memory at all.
    pub time: u64,
    /// Bytes by [`Use`].
    pub bytes: [u64; Use::ALL.len()],
    /// By use and stack, largest first.
    pub holders: Vec<(Use, StackId, Amount)>,
}

impl Moment {
    /// Returns the bytes of one use.
    pub fn of(&self, what: Use) -> u64 {
        self.bytes[what as usize]
    }

    /// Returns the bytes of tensors and other allocations.
    pub fn in_use(&self) -> u64 {
        self.of(Use::Tensor).saturating_add(self.of(Use::Other))
    }

    /// Returns all bytes.
    pub fn held(&self) -> u64 {
        self.in_use().saturating_add(self.of(Use::Cached))
    }
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

    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tensors",
            Self::Cached => "cached",
            Self::Other => "other",
        }
    }
}

/// Memory of one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Allocations; for cached memory, the segments that contain it.
    pub count: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Tensors.
    pub tensors: u64,
    /// Their requested bytes.
    pub tensor_bytes: u64,
    /// Tensors that were freed.
    pub freed: u64,
    /// Frees of tensors that were allocated before the recording began, or whose allocation was lost.
    pub unknown_frees: u64,
    /// Tensors whose free was not seen: their memory was used again.
    pub missed_frees: u64,
    /// Tensors beyond the limit: they are not included.
    pub untracked: u64,
    /// Driver allocations.
    pub allocations: u64,
}

impl GpuMemory {
    /// Whether no memory was recorded.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Returns the stacks that it refers to.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> + '_ {
        let moments = self.devices.values().flat_map(|device| [&device.peak, &device.end]);
        moments.flat_map(|moment| moment.holders.iter().map(|(_, stack, _)| *stack))
    }
}
