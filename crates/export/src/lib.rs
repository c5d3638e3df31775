//! Writes recordings as files: one module per format, the same bytes for the same recording.
//!
//! ```text
//!   formats      the report (html), timelines, flame graphs, tables and events; diff: the page of a comparison
//!   profiles     requests with continuous profiles: OTLP, and Pyroscope's push API
//!   moments      events in the order of a timeline; lanes puts those that overlap side by side
//!   palette      the colour of a frame
//! ```
//!
//! Formats of weighted stacks (`.folded`, `.svg`) need only the [`model::profile::Profile`]. Formats of individual events or
//! threads (`.html`, `.json`, `.jsonl`, ...) read the recording again and use the profile of the first pass for the names, so
//! that no format holds all events in memory.

pub mod diff;
pub mod formats;
mod lanes;
mod launch_lengths;
mod moments;
mod palette;
mod power;
pub mod profiles;

pub use crate::formats::{
    Format, UnknownExtension,
    jsonl::{LiveLines, ReadError, read_back},
    table, write,
};
