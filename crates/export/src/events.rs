//! Events, read again.

use model::event::Event;

/// The events of a recording, in the order of their arrival. Where it was cut off they end early; whoever folded it knows.
pub type Events<'a> = Box<dyn Iterator<Item = Event> + 'a>;
