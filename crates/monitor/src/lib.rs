//! The daemon behind `warpscope monitor` and `warpscope top`: it watches every process that uses CUDA, sums in the kernel, and
//! shows a [`snapshot::Snapshot`] of the sums on demand.
//!
//! ```text
//!   watch ──> snapshot ──> openmetrics ──> serve, over http
//!                     ├──> console
//!                     └──> top
//! ```
//!
//! Only `watch` needs the kernel and privileges. The rest is tested without them.

pub mod config;
pub mod console;
mod daemon;
mod ended;
pub mod http;
pub mod map;
pub mod openmetrics;
mod recording;
pub mod serve;
pub mod snapshot;
pub mod top;
mod watch;

pub use daemon::{Daemon, Output};
