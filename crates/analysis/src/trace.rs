//! Traces: individual calls, and their summary.
//!
//! A [`reading`] turns a call's raw words into names and values. Every output of individual calls is made from
//! readings: [`live`] prepares them while a trace runs. [`summary`] has the numbers of a trace; the idle gaps need
//! another pass over the events.

mod driver;
mod gaps;
pub mod live;
pub mod reading;
mod rows;
pub mod summary;
pub mod values;

pub use driver::error_number;
pub use summary::TraceSummary;
