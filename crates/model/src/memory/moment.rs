//! Who held memory at one time.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::event::{ProcessId, StackId};

pub use crate::event::Use;

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
