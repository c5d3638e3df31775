//! Knowledge of CUDA for observers: which arguments of a call to capture, what they mean, and the names of results.
//!
//! A probe at a function's entry sees argument words without types. [`calls`] defines, for each function, which words
//! and which memory behind them to capture, and converts them to named fields. [`results`] names a function's return
//! value, and [`ioctls`] the requests that the driver's libraries make to the kernel module. [`memory`] defines the
//! rules for counting live memory, and [`occupancy`] those by which kernels fill a device.
//!
//! Pure: it links to nothing and reads only its input. The input comes from untrusted programs, so any word may be
//! missing and any byte wrong.

pub mod calls;
pub mod ioctls;
pub mod memory;
pub mod occupancy;
pub mod results;

pub use calls::{Call, call};
