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
//!
//! A window of the flight recorder begins in the middle: it has the result, as [`crate::event::HeldMemory`].
//!
//! A peak needs the order of all allocations and frees, so each tensor is one event, and not part of a sum. Missed
//! events do not accumulate: an address that is allocated again was freed before, and a freed segment contains no
//! tensors.

mod allocations;
mod blocks;
mod held;
mod moment;
mod process;
mod sums;
#[cfg(test)]
mod tests;

pub use self::allocations::{Allocations, refused};
pub use self::moment::{Amount, Counts, DeviceMemory, GpuMemory, Moment, Use};
