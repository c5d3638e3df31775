//! What flame graphs show.

use std::path::Path;

use analysis::{EventView, View};
use export::Format;
use model::{event::Mode, profile::Profile};

/// Whether only events were recorded.
pub fn events_alone(profile: &Profile) -> bool {
    profile.start.as_ref().is_some_and(|start| start.mode == Mode::EventsOnly)
}

/// Returns the default view: time, or the only event that was recorded.
pub fn default(profile: &Profile) -> View {
    let mut counters = profile.counters.all.keys();
    match (counters.next(), counters.next()) {
        (Some(&counter), None) if events_alone(profile) => {
            View { event: Some(EventView { counter, by_count: false }), ..View::default() }
        }
        _ => View::default(),
    }
}

/// Whether a format shows stacks with one amount, which a recording of several events does not have.
pub fn shows_stacks(path: &Path) -> bool {
    Format::from_path(path).is_ok_and(is_of_stacks)
}

/// The same of a format.
pub fn is_of_stacks(format: Format) -> bool {
    matches!(format, Format::Svg | Format::Folded)
}
