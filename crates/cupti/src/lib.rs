//! CUPTI's ABI as warpscope uses it, written by hand from the public headers: ids, record layouts, function types.
//!
//! Nothing here links to CUPTI. Records are read by offset, never through a struct of fixed size, because every release
//! makes some of them longer at the tail: see [`record`] for the fields and [`release`] for what each release delivers.

#![no_std]

pub mod callback;
pub mod ids;
pub mod record;
pub mod release;
pub mod types;
