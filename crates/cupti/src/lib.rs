//! The part of CUPTI's ABI that warpscope uses, written by hand from the public headers: ids, record layouts, function
//! types; and where libcupti is installed.
//!
//! Nothing here links to CUPTI. Records are read by offset, never through a struct of fixed size, because releases
//! append fields to them: see [`record`] for the fields and [`release`] for the record lengths of each release.

#![no_std]

extern crate alloc;

pub mod callback;
pub mod ids;
pub mod limits;
pub mod locations;
pub mod pc_sampling;
pub mod pm_sampling;
pub mod range_profiler;
pub mod record;
pub mod release;
pub mod types;
