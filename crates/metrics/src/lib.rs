//! The output of `warpscope monitor`: a [`snapshot::Snapshot`] of the machine and its presentations. Pure: it reads
//! neither the kernel nor a GPU, and is tested without privileges.

mod clock;
pub mod config;
pub mod console;
pub mod http;
pub mod map;
pub mod openmetrics;
pub mod rates;
pub mod site;
pub mod snapshot;
pub mod top;
