//! Traces: calls told one by one, and what they amount to.
//!
//! A [`reading`] turns a call's raw words into names and values; every output is made from readings. [`line`] is a call as
//! a line of text, `jsonl` as a line of JSON.

mod driver;
pub(crate) mod jsonl;
pub mod line;
pub mod reading;

pub use line::Lines;

use model::{event::Mode, profile::Profile};

/// Most characters of a kernel's name in a line, where it can be had.
const KERNEL_LENGTH: usize = 48;

/// The recording is a trace.
pub(crate) fn is_trace(profile: &Profile) -> bool {
    profile.start.as_ref().is_some_and(|start| matches!(start.mode, Mode::Trace | Mode::TraceSums))
}
