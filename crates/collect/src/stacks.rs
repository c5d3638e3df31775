//! Call stacks: unwind tables for the kernel's walker, stacks walked in user space, and Python frames.

pub mod python;
pub mod unwinding;
