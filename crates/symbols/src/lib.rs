//! Names for addresses: after the fact, once per distinct address, even if the process has gone.
//!
//! [`resolve`] takes the addresses of a profile's stacks, finds the file each lay in from the recorded mappings, and asks
//! the file. Kernel addresses are asked of the running kernel. [`demangle`] makes names readable. [`python`] is what has to be
//! known of CPython.

mod demangle;
mod modules;
pub mod python;
mod resolve;

pub use demangle::{demangle, name_kernels};
pub use resolve::resolve;
