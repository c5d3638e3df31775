//! `export`: converts a recording to other formats.

use std::{io, path::Path, process::ExitCode};

use analysis::{EventView, Flames, MemoryView, Table, View};
use anyhow::bail;
use collect::command::user::User;
use export::Format;
use model::profile::Profile;

use crate::{
    args,
    load::{Find, load},
    outputs::{Outputs, view},
    push::Pushes,
    say::say,
};

/// Runs the command.
pub fn run(options: &args::Export) -> anyhow::Result<ExitCode> {
    let format = options.format.as_deref().map(format).transpose()?;
    let pushes = Pushes::prepare(&options.push, None, false)?;
    if pushes.any() && options.recordings.len() > 1 {
        bail!("push one recording at a time: each has labels and times of its own");
    }
    let mut outputs = Outputs::open_as(format, &options.output, &[], User::behind_sudo().as_ref())?;
    let table = options.table.unwrap_or_default().0;
    let find = if table == Table::Steps || outputs.has_steps() { Find::Outliers } else { Find::Profile };
    let mut loaded = load(&options.recordings, &options.filters, find)?;
    options.graph_stacks.apply(&mut loaded.profile);
    let status = loaded.status();
    outputs.read_from(loaded.source, loaded.filter.take())?;
    let any_calls = !loaded.profile.calls.is_empty();
    let calls = options.phases.of_calls(options.min_duration.filter(|_| any_calls));
    loaded.profile.notes.extend(calls.note(None));
    let view = View { table, calls, ..chosen_view(options, &loaded.profile)? };
    for note in &loaded.profile.notes {
        say(note);
    }
    let mut whole = outputs.write(&Flames::new(&loaded.profile), view, true);
    outputs.announce(&mut io::stderr())?;
    whole &= pushes.push(&loaded.profile, view, &mut || outputs.events(), None, true, &|| false)?;
    Ok(if whole { status } else { ExitCode::FAILURE })
}

/// Returns the format with an extension, such as `folded` or `.cpu.txt`.
fn format(extension: &str) -> anyhow::Result<Format> {
    Ok(Format::from_path(Path::new(&format!("output.{}", extension.trim_start_matches('.'))))?)
}

/// Returns the view that flame graphs and folded stacks show.
fn chosen_view(options: &args::Export, profile: &Profile) -> anyhow::Result<View> {
    if options.idle {
        needs_stacks(options, "idle time", "--idle")?;
        return idle_view(profile);
    }
    if let Some(moment) = options.memory {
        needs_stacks(options, "GPU memory", "--memory")?;
        return memory_view(moment, profile);
    }
    let counters = &profile.counters;
    let names = || counters.all.values().map(|counter| counter.name.as_str()).collect::<Vec<_>>().join(", ");
    let Some(name) = &options.event else {
        let shown = view::default(profile);
        if shown.event.is_none()
            && view::events_alone(profile)
            && options.output.iter().any(|path| view::shows_stacks(path))
        {
            bail!("the recording contains several events and nothing else: choose one with --event: {}", names());
        }
        let (cpu, gpu, unfold_recursion) = (!options.gpu_only, !options.cpu_only, options.unfold_recursion);
        return Ok(View { cpu, gpu, waits: cpu && gpu, unfold_recursion, ..shown });
    };
    match counters.named(name) {
        Some(counter) => {
            let event = EventView { counter: counter.id, by_count: options.count };
            Ok(View { event: Some(event), unfold_recursion: options.unfold_recursion, ..View::default() })
        }
        None if counters.all.is_empty() => bail!("the recording has no events: record some with --event"),
        None => bail!("the recording has no event called {name}; it has: {}", names()),
    }
}

/// Rejects outputs that do not show stacks, for an option that changes what stacks show.
fn needs_stacks(options: &args::Export, what: &str, option: &str) -> anyhow::Result<()> {
    let otherwise = options.format.as_deref().and_then(|extension| format(extension).ok());
    let shows = |path: &Path| Format::from_path(path).ok().or(otherwise).is_some_and(view::is_of_stacks);
    match options.output.iter().find(|path| !shows(path)) {
        Some(path) => bail!("cannot write {what} to {}: {option} needs an .svg or .folded file", path.display()),
        None => Ok(()),
    }
}

/// Returns the view of GPU memory, if it was recorded.
fn memory_view(moment: args::MemoryMoment, profile: &Profile) -> anyhow::Result<View> {
    if profile.memory.is_empty() {
        bail!("the recording has no GPU memory: record with --memory; if it was, no GPU memory was allocated");
    }
    let memory = match moment {
        args::MemoryMoment::Peak => MemoryView::Peak,
        args::MemoryMoment::End => MemoryView::End,
    };
    Ok(View { memory: Some(memory), ..View::default() })
}

/// Returns the view of idle GPUs, if the recording can explain them.
fn idle_view(profile: &Profile) -> anyhow::Result<View> {
    if profile.is_trace() {
        bail!("a trace lists its idle gaps in its report: --idle needs a recording of `warpscope record`");
    }
    if profile.sampled.estimated.launches > 0 {
        bail!("GPU work was recorded only part of the time, so idle time is not known: record without --max-overhead");
    }
    Ok(View { idle: true, ..View::default() })
}
