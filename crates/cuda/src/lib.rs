//! What is known of CUDA from outside: which arguments of a call to capture, what they mean, and what its result is called.
//!
//! A probe at a function's entry sees argument words and no types. [`calls`] says, function by function, which words and which
//! memory behind them are worth taking, and turns them into named fields. [`results`] names what a function returns, and
//! [`ioctls`] what the driver's libraries ask of the kernel module. [`memory`] has the rules by which live memory is counted.
//!
//! Pure: it links to nothing and reads no memory but what it is given. That comes from other people's programs, so any word
//! may be missing and any byte wrong.

pub mod calls;
pub mod ioctls;
pub mod memory;
pub mod results;

pub use calls::{Call, call};
