//! What `warpscope monitor` tells, and how: one [`snapshot::Snapshot`] of the machine, and what is made of it. Pure: it
//! reads no kernel and no GPU, and is tested without privileges.

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
