//! `--event`: which outputs can show the counted events, and how to draw them.

use std::path::Path;

use analysis::View;
use anyhow::bail;
use collect::events::spec::Spec;
use model::profile::Profile;

use crate::{args, outputs::view::shows_stacks};

/// Rejects outputs that could not say which event they show.
pub fn check_outputs(options: &args::Record, specs: &[Spec]) -> anyhow::Result<()> {
    let count = specs.len() + usize::from(options.off_cpu.is_some());
    if options.events_only && count == 0 {
        bail!("--events-only requires --event or --off-cpu");
    }
    let stacks = options.output.iter().find(|path| shows_stacks(path));
    if options.events_only
        && count > 1
        && let Some(path) = stacks
    {
        bail!(
            "{} can show only one event, but {count} are recorded: write a .wscope file, then use warpscope export --event {}",
            path.display(),
            specs[0].name
        );
    }
    Ok(())
}

/// Says how to draw the events that no output shows.
pub fn announce(profile: &Profile, view: View, recording: Option<&Path>) {
    let Some(recording) = recording.map(Path::display) else { return };
    for counter in profile.counters.all.values().filter(|_| view.event.is_none()) {
        let name = text::names::printable(&counter.name);
        eprintln!("draw event {name}: warpscope export {recording} --event '{name}' -o FILE.svg");
    }
}
