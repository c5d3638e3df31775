//! `--event`: which outputs can show what is counted, and how to draw it.

use std::path::Path;

use anyhow::bail;
use bpf::Recorder;
use collect::{
    calls::search,
    command::target::Injection,
    events::{Events, spec::Spec},
};
use export::View;
use model::{event::Event, profile::Profile};

use crate::{args, outputs::view::shows_stacks};

/// Watches what `--event` names, before the command starts; `None` if it names nothing.
pub fn start(
    specs: Vec<Spec>,
    options: &args::Record,
    injection: &Injection,
    recorder: &mut Recorder,
    push: &mut dyn FnMut(Event),
) -> anyhow::Result<Option<Events>> {
    if specs.is_empty() {
        return Ok(None);
    }
    let mut events = Events::new(specs, push);
    let program = search::program(&options.command[0]);
    events.watch(program.as_deref(), injection.simulator.as_deref(), recorder, push)?;
    Ok(Some(events))
}

/// Refuses outputs that could not say what they show.
pub fn check_outputs(options: &args::Record, specs: &[Spec]) -> anyhow::Result<()> {
    if options.events_only && specs.is_empty() {
        bail!("--events-only records nothing without --event");
    }
    let stacks = options.output.iter().find(|path| shows_stacks(path));
    if options.events_only
        && specs.len() > 1
        && let Some(path) = stacks
    {
        bail!(
            "{} can show one event, and {} are recorded: write a .wscope file, then use warpscope export --event {}",
            path.display(),
            specs.len(),
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
