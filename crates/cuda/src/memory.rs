//! Live memory: the rules that turn calls into an account of the memory that a process has allocated and not yet freed.
//!
//! Two implementations follow them: `crates/bpf/src/bpf/memory.h`, where calls are only summed, and `model::calls`,
//! where each call is recorded. [`vectors`] contains the test vectors that both must pass.
//!
//! 1. **What counts.** Of nested calls with the same role (a driver's allocation within the runtime's) the outermost
//!    counts. Addresses belong to one process, and to a [`Group`]: an address range, a physical allocation and the
//!    mapping of one on the other may have the same number.
//! 2. **An allocation** counts when it returns. A failed one only counts as failed. One that returns no address is
//!    counted and not tracked.
//! 3. **A live address that is allocated again** was freed by a call that was not seen: the previous allocation is no
//!    longer live, and counts as a *missed free*.
//! 4. **A free** ends the allocation that is live at its address when the call *begins*: once the driver has freed it,
//!    another thread may get the same address before this call returns. If the free fails, the allocation is live again,
//!    unless its address has been reused in the meantime. A free of memory whose allocation was not seen counts as a
//!    free and as an *unknown free*; a free of null is not counted. The kind of memory is the allocation's, whatever
//!    function frees it; if the allocation is unknown, it is the function's.
//! 5. **Contexts.** An allocation belongs to its thread's current context. `cudaSetDevice`, `cuCtxSetCurrent`,
//!    `cuCtxPushCurrent`, `cuCtxPopCurrent` and `cuCtxCreate` change it; a thread in which none of them was seen is on
//!    device 0, CUDA's own default. A primary context is identified by its device (`cuDevicePrimaryCtxRetain`). Only one
//!    pushed context is remembered. So a process that uses one device is accounted for exactly; so is one that uses
//!    several, if it is watched from its start, or once each of its threads has chosen its device.
//! 6. **Releases.** `cudaDeviceReset` releases everything allocated on the thread's current device, and
//!    `cuDevicePrimaryCtxReset` on the device that it names; `cuCtxDestroy` everything allocated in that context;
//!    `cuDevicePrimaryCtxRelease` the same as a reset when it drops the last reference. References that were not seen
//!    count as never dropped: they exist if there was an allocation on the device and no reference to its context. Only
//!    what had been allocated before the call began is released, and only if the call succeeds. Physical memory, its
//!    mappings, reserved addresses and imported memory ([`Group::has_context`]) outlive contexts.
//! 7. **The peak** is the maximum of live bytes after any allocation. If calls are recorded individually, memory being
//!    freed counts as live until the free returns.
//!
//! For each process and kind, `allocations = frees - unknown frees + missed frees + released + live + untracked`.

pub mod vectors;

use crate::calls::{Call, Role, Space};

/// The effect of a call on the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Allocates.
    Alloc,
    /// Frees the memory at its first argument.
    Free,
    /// Makes the device in its first argument current in this thread.
    SetDevice,
    /// Makes the context in its first argument current.
    SetContext,
    /// The same, and saves the previous one.
    PushContext,
    /// Returns to the previous one.
    PopContext,
    /// Creates a context, its result, and makes it current.
    CreateContext,
    /// Destroys the context in its first argument.
    DestroyContext,
    /// Retains the primary context, its result, of the device in its second argument.
    RetainPrimary,
    /// Drops a reference to the primary context of the device in its first argument.
    ReleasePrimary,
    /// Resets the primary context of the device in its first argument.
    ResetPrimary,
    /// Resets the current device.
    ResetDevice,
}

impl Call {
    /// Returns the effect of the call on the account of live memory, if it succeeds.
    pub fn action(&self) -> Option<Action> {
        match self.role {
            Role::Alloc => return Some(Action::Alloc),
            Role::Free => return Some(Action::Free),
            Role::Context => {}
            _ => return None,
        }
        Some(match self.name {
            "cudaSetDevice" => Action::SetDevice,
            "cuCtxSetCurrent" => Action::SetContext,
            "cuCtxPushCurrent" => Action::PushContext,
            "cuCtxPopCurrent" => Action::PopContext,
            "cuCtxCreate" | "cuCtxCreate_v3" | "cuCtxCreate_v4" => Action::CreateContext,
            "cuCtxDestroy" => Action::DestroyContext,
            "cuDevicePrimaryCtxRetain" => Action::RetainPrimary,
            "cuDevicePrimaryCtxRelease" => Action::ReleasePrimary,
            "cuDevicePrimaryCtxReset" => Action::ResetPrimary,
            "cudaDeviceReset" | "cudaThreadExit" => Action::ResetDevice,
            _ => return None,
        })
    }
}

/// Addresses and handles in different groups are never the same allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Memory with its own address.
    Address = 0,
    /// Host memory that already existed.
    Registered = 1,
    /// Handles of arrays.
    Array = 2,
    /// Handles of physical memory, and memory imported from other processes.
    Physical = 3,
    /// Addresses given to physical memory.
    Mapped = 4,
    /// Addresses without memory.
    Reserved = 5,
}

impl Group {
    /// Whether it is released with its context. In the BPF programs, this applies to groups below
    /// `GROUP_WITHOUT_CONTEXT`.
    pub fn has_context(self) -> bool {
        matches!(self, Self::Address | Self::Registered | Self::Array)
    }
}

impl Space {
    /// Returns the group of its addresses.
    pub fn group(self) -> Group {
        match self {
            Self::Device | Self::Managed | Self::Host => Group::Address,
            Self::Registered => Group::Registered,
            Self::Array => Group::Array,
            Self::Physical | Self::Imported => Group::Physical,
            Self::Mapped => Group::Mapped,
            Self::Reserved => Group::Reserved,
        }
    }
}
