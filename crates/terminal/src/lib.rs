//! What `analysis` concludes, as text for a terminal.
//!
//! ```text
//!   summary    the text after `record` and of `report`; findings, steps, ranks, ranges, stalls, energy, memory: its parts
//!   calls      its parts about traced calls; latency draws durations, timeline what happened when
//!   brief      the summary in at most 60 lines, plain or as Markdown (document)
//!   tables     the rows of a table; diff: a comparison; live: calls as they return
//!   hang       what the ranks of a stuck job do
//!   explain    what findings, frames, metrics and words mean
//!   page       lines, colours, bars, and names shortened to fit; style: what the terminal can show
//! ```

use std::{cell::RefCell, io};

use analysis::{Events, Flames, summary::Summary};
use model::event::Event;

mod brief;
mod calls;
mod diff;
mod document;
mod energy;
mod explain;
mod findings;
mod hang;
mod latency;
mod limits;
mod live;
mod memory;
mod page;
mod ranges;
mod ranks;
mod stalls;
mod steps;
mod style;
mod summary;
mod tables;
mod timeline;

use crate::timeline::Timeline;
pub use crate::{
    brief::brief,
    diff::{comparison, verdict},
    document::Form,
    explain::explanations,
    hang::hang,
    live::Lines,
    steps::steps,
    style::Style,
    tables::table,
};

/// Returns the text of a recording: its summary, and for a trace the idle gaps and the timeline. `events` opens the
/// recording from its beginning; it is called once, and only for traces of single calls.
pub fn report<'a>(
    flames: &Flames<'_>,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
    colour: bool,
    width: usize,
) -> io::Result<String> {
    let profile = flames.profile;
    let timeline = &RefCell::new(None);
    let mut drawn = || -> io::Result<Events<'_>> {
        timeline.replace(Some(Timeline::new(profile, width)));
        let draw = move |event: &Event| {
            if let Some(timeline) = timeline.borrow_mut().as_mut() {
                timeline.event(profile, event);
            }
        };
        Ok(Box::new(events()?.inspect(draw)))
    };
    let summary = Summary::with_events(flames, &mut drawn)?;
    let timeline = timeline.take().filter(|timeline| !timeline.rows.is_empty());
    Ok(summary::render(&summary, timeline.as_ref(), colour, width))
}
