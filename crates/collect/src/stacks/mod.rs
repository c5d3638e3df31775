//! Call stacks: unwind tables for the walker in the kernel, stacks that are walked here, and Python frames.

pub mod python;
pub mod unwinding;
