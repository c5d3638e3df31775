//! When events happened.

use crate::event::Event;

/// Returns the start and end of what an event describes; `None` if it has no time.
pub fn span(event: &Event) -> Option<(u64, u64)> {
    match event {
        Event::Launch(e) => Some((e.time, e.time)),
        Event::Activity(e) if e.start != 0 => Some((e.start, e.end.max(e.start))),
        Event::Sample(e) => Some((e.time, e.time)),
        Event::Sync(e) if e.start != 0 => Some((e.start, e.end.max(e.start))),
        Event::Wait(e) => Some((e.start, e.end)),
        Event::Switch(e) => Some((e.start, e.end)),
        Event::Call(e) => Some((e.start, e.end.max(e.start))),
        Event::Range(e) => Some((e.start, e.end)),
        Event::Pause(e) => Some((e.from, e.to)),
        Event::Energy(e) => Some((e.time, e.time)),
        Event::Gpm(e) => Some((e.start, e.end)),
        Event::PmSamples(e) => Some((e.start, e.end())),
        _ => None,
    }
}

/// Returns the latest time of an event.
pub fn newest(event: &Event) -> Option<u64> {
    span(event).map(|(_, end)| end)
}
