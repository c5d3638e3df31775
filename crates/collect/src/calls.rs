//! Traced functions: which ones, in which files, and what their records mean.

pub mod callbacks;
mod code;
pub(crate) mod effort;
pub mod file;
pub mod functions;
pub mod handles;
pub mod kernel;
pub mod late;
pub mod libraries;
pub mod named;
pub mod objects;
pub mod pausable;
pub mod points;
mod repeats;
mod rings;
pub mod search;
pub mod sums;
pub mod tracer;
pub mod wanted;
