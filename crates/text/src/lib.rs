//! Text for people: numbers with units, names that are safe to print, shortened names, patterns for names, whose code it is.

mod ending;
pub mod names;
mod near;
pub mod pattern;
pub mod short;
pub mod units;
pub mod user_code;

pub use ending::ending;
pub use near::{did_you_mean, near};
