//! Reads the events of a recording for writers of timelines: joins GPU work and launches, and selects what the view shows.

use std::io;

use analysis::{Events, flame_tree::View};
use model::{
    causes::{Cause, Causes, Joined},
    event::Event,
};

use crate::launch_lengths::{LaunchLengths, Launched};

/// What a writer of a timeline receives.
pub(crate) enum Moment<'a> {
    /// Any event, before what it leads to.
    Seen(&'a Event),
    /// A launch. Its work may follow or have preceded it; the thread's next launch has begun.
    Launch(&'a Launched),
    /// GPU work, with its launch if it was seen.
    Ran(&'a Joined<'a>),
    /// Any other event that the view shows.
    Shown(&'a Event),
}

/// Passes everything to `write`, until it fails.
pub(crate) fn each_moment(
    view: View,
    events: Events<'_>,
    mut write: impl FnMut(Moment<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut causes = Causes::default();
    let mut lengths = LaunchLengths::default();
    for event in events {
        write(Moment::Seen(&event))?;
        let mut result = Ok(());
        let mut on = |cause: Cause<'_>| {
            // A pending launch was written when it arrived.
            if let (Cause::Ran(joined), Ok(())) = (cause, &result) {
                result = write(Moment::Ran(&joined));
            }
        };
        match &event {
            Event::Launch(launch) if view.gpu => {
                causes.launch(launch, &mut on);
                result?;
                if let Some(last) = lengths.launch(launch) {
                    write(Moment::Launch(&last))?;
                }
            }
            Event::Returned(returned) => lengths.returned(returned),
            Event::Activity(activity) if view.gpu => {
                causes.activity(activity, &mut on);
                result?;
            }
            Event::Launch(_) | Event::Activity(_) => {}
            other => {
                causes.note(other);
                if shows(view, other) {
                    write(Moment::Shown(other))?;
                }
            }
        }
    }
    let mut result = Ok(());
    causes.finish(|cause| {
        if let (Cause::Ran(joined), Ok(())) = (cause, &result) {
            result = write(Moment::Ran(&joined));
        }
    });
    result?;
    for last in lengths.finish() {
        write(Moment::Launch(&last))?;
    }
    Ok(())
}

/// Whether the view shows an event.
fn shows(view: View, event: &Event) -> bool {
    match event {
        Event::Sync(_) | Event::Pause(_) | Event::Energy(_) | Event::Gpm(_) | Event::PmSamples(_) => view.gpu,
        Event::Sample(_) => view.cpu,
        Event::Wait(_) => view.waits,
        Event::Call(call) => view.calls.shows(call),
        _ => true,
    }
}
