//! Traced functions: which ones, in which files, and what their records mean.

mod effort;
pub mod functions;
pub mod kernel;
pub mod late;
pub mod libraries;
pub mod named;
pub mod points;
pub mod search;
pub mod sums;
pub mod tracer;
