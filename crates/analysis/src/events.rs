//! Reads the events of a recording again.

use model::event::Event;

/// The events of a recording, in order of arrival. In a truncated recording they end early; the fold already reports
/// that.
pub type Events<'a> = Box<dyn Iterator<Item = Event> + 'a>;
