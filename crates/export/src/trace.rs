//! Traces: individual calls, and their summary.
//!
//! A [`reading`] turns a call's raw words into names and values. Every output of individual calls is made from
//! readings: [`line`] formats a call as a line of text, `jsonl` as a line of JSON. [`summary`] has the numbers of a
//! trace, and `render` their text, which needs another pass over the events for the idle [`gaps`] and the
//! [`timeline`]. `read_back` turns the lines of `jsonl` into events again.

mod driver;
pub mod gaps;
pub(crate) mod json_line;
pub(crate) mod jsonl;
pub(crate) mod labels;
mod latency;
mod launched;
pub mod line;
pub(crate) mod read_back;
pub mod reading;
pub(crate) mod render;
pub mod rows;
pub mod summary;
pub mod timeline;
pub mod values;

use model::{event::Event, profile::Profile};

pub(crate) use labels::is_trace;
pub use line::{Form, Lines};
pub use read_back::{ReadError, read_back};
pub use summary::TraceSummary;

use crate::events::Events;
use gaps::Gaps;
use timeline::Timeline;

impl TraceSummary {
    /// Adds what requires the events: what the CPU did in the GPU's idle gaps, and the timeline, `width` columns wide.
    /// Traces with only sums have neither.
    pub fn add_events(&mut self, profile: &Profile, events: Events<'_>, width: usize) {
        if Self::sums_only(profile) {
            return;
        }
        let mut gaps = Gaps::of(profile);
        let mut timeline = Timeline::new(profile, width);
        for event in events {
            match event {
                Event::Call(call) => {
                    gaps.call(profile, &call);
                    timeline.call(profile, &call);
                }
                Event::Switch(switch) => timeline.switch(&switch),
                Event::Activity(activity) => timeline.activity(profile, &activity),
                _ => {}
            }
        }
        // Calls that are not selected may fill a gap.
        self.idle_gaps = if profile.is_part() { Vec::new() } else { gaps.finish(profile) };
        self.timeline = Some(timeline).filter(|line| !line.rows.is_empty());
    }
}
