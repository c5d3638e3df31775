//! Live memory: the rules by which calls are turned into an account of what a process has allocated and not yet freed.
//!
//! Two programs follow them: `crates/bpf/src/bpf/memory.h`, where calls are only summed up, and `model::calls`, where each
//! call is recorded. [`vectors`] has the test vectors that both must pass.
//!
//! 1. **What counts.** Of calls within calls of the same role (a driver's allocation within the runtime's) the outermost
//!    counts. Addresses belong to one process, and to a [`Group`]: an address range, a physical allocation and the mapping
//!    of one on the other may have the same number.
//! 2. **An allocation** counts when it returns. One that fails counts as failed, and nothing else. One that returns no
//!    address is counted and not tracked.
//! 3. **An address that is live already** and is given out again was freed by a call that was not seen: what was there
//!    before is no longer live, and counts as a *missed free*.
//! 4. **A free** ends the allocation that is live at its address when the call *begins*: once the driver has freed it,
//!    another thread may be given the same address before this call returns. If the free fails, the allocation is live
//!    again, unless its address has been given out meanwhile. A free of memory whose allocation was not seen counts as a
//!    free and as an *unknown free*; a free of null counts as nothing. The kind of memory is the allocation's, whatever
//!    function frees it; where the allocation is not known, it is the function's.
//! 5. **Places.** An allocation belongs to the context that is current in its thread. `cudaSetDevice`, `cuCtxSetCurrent`,
//!    `cuCtxPushCurrent`, `cuCtxPopCurrent` and `cuCtxCreate` say which that is; a thread in which none of them was seen is
//!    on device 0, as CUDA's own default is. A primary context is known by its device (`cuDevicePrimaryCtxRetain`). Of
//!    pushed contexts one is remembered. So a process that uses one device is accounted for exactly; one that uses several
//!    is, too, if it is watched from its start, or once each of its threads has chosen its device.
//! 6. **Releases.** `cudaDeviceReset` releases everything allocated on the thread's current device, and
//!    `cuDevicePrimaryCtxReset` on the device that it names; `cuCtxDestroy` everything allocated in that context;
//!    `cuDevicePrimaryCtxRelease` the same as a reset when it gives up the last reference. References that were not seen
//!    count as never given up: they exist if there was an allocation on the device and no reference to its context.
//!    Only what had been allocated before the call began is released, and only if the call succeeds. Physical memory, its
//!    mappings, reserved addresses and imported memory ([`Group::has_context`]) outlive contexts.
//! 7. **The peak** is the most live bytes after any allocation. Where calls are recorded one by one, memory whose free is
//!    under way counts as live until the free returns.
//!
//! For each process and kind, `allocations = frees - unknown frees + missed frees + released + live + untracked`.

pub mod vectors;

use crate::calls::{Call, Role, Space};

/// What a call means for the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Allocates.
    Alloc,
    /// Frees what is at its first argument.
    Free,
    /// Makes the device in its first argument current in this thread.
    SetDevice,
    /// Makes the context in its first argument current.
    SetContext,
    /// The same, and keeps the one before.
    PushContext,
    /// Returns to the one before.
    PopContext,
    /// Makes a context, its answer, and makes it current.
    CreateContext,
    /// Destroys the context in its first argument.
    DestroyContext,
    /// Retains the primary context, its answer, of the device in its second argument.
    RetainPrimary,
    /// Gives up a reference to the primary context of the device in its first argument.
    ReleasePrimary,
    /// Resets the primary context of the device in its first argument.
    ResetPrimary,
    /// Resets the current device.
    ResetDevice,
}

impl Call {
    /// What the call means for the account of live memory, if it succeeds.
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

/// Addresses and handles that cannot be the same allocation if they are in different groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Memory with an address that is its own.
    Address = 0,
    /// Host memory that was there before.
    Registered = 1,
    /// Handles of arrays.
    Array = 2,
    /// Handles of physical memory, and whatever comes from other processes.
    Physical = 3,
    /// Addresses given to physical memory.
    Mapped = 4,
    /// Addresses without memory.
    Reserved = 5,
}

impl Group {
    /// Goes when its context does. In the kernel's programs, groups below `GROUP_WITHOUT_CONTEXT` do.
    pub fn has_context(self) -> bool {
        matches!(self, Self::Address | Self::Registered | Self::Array)
    }
}

impl Space {
    /// The group that its addresses are in.
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
