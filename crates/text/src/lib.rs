//! Text for people: numbers with their units, names that are safe to print, long names made short, patterns for names.

pub mod names;
mod near;
pub mod pattern;
pub mod short;
pub mod units;

pub use near::{did_you_mean, near};
