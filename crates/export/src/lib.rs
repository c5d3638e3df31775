//! The outputs generated from a recording, the same bytes for the same recording, and what they conclude from it.
//!
//! ```text
//!   formats      one module per format: the report (html), timelines, flame graphs, tables of events
//!   summary      the text on the terminal; tables: its rows as CSV; diff: two recordings; trace: calls
//!   findings     what to look at first, and the evidence: idle, waits, occupancy, verdicts, stalls, energy, memory
//!   losses       what is missing, and why
//!   flame_tree   stacks by name with their weights; flame_cache builds each tree once; weighted has all weights of a stack
//!   moments      events in the order of a timeline; lanes puts those that overlap side by side
//!   names        frames as text; family, user_code and palette: whose code a frame is, and its colour
//! ```
//!
//! Formats of weighted stacks (`.folded`, `.svg`) and the [`summary`] need only the [`model::profile::Profile`]. Formats of
//! individual events or threads (`.html`, `.json`, `.jsonl`, ...) read the recording again and use the profile of the first pass
//! for the names, so that no format holds all events in memory.

use std::io;

use analysis::{Events, Flames};

pub mod diff;
pub mod formats;
mod helper_programs;
mod lanes;
mod launch_lengths;
mod moments;
mod palette;
mod power;
mod recursion;
mod start_line;
pub mod summary;
pub mod tables;
mod terminal_text;
pub mod trace;
mod weighted;

pub use crate::{
    formats::{Format, UnknownExtension, write},
    summary::Summary,
};

/// Returns the text of a recording: its summary, and for a trace the idle gaps and the timeline. `events` opens the
/// recording from its beginning; it is called once, and only for traces.
pub fn report<'a>(
    flames: &Flames<'_>,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
    colour: bool,
    width: usize,
) -> io::Result<String> {
    Ok(summary::render(&Summary::with_events(flames, events, width)?, colour, width))
}
