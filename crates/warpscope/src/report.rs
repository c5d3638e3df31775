//! `report`: summarises a recording.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use export::{Flames, Summary};

use crate::{
    args,
    load::{Loaded, load},
    outputs::events,
    summary::width,
};

/// Runs the command.
pub fn run(options: &args::Report) -> anyhow::Result<ExitCode> {
    let Loaded { file, mut profile, selection } = load(&options.recording, options.rank)?;
    options.graph_stacks.apply(&mut profile);
    let mut out = io::stdout().lock();
    let width = width(io::stdout());
    let mut events = || events(&file, selection.clone());
    let flames = Flames::new(&profile);
    if options.json {
        let summary = Summary::with_events(&flames, &mut events, width)?;
        serde_json::to_writer_pretty(&mut out, &summary).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", export::report(&flames, &mut events, io::stdout().is_terminal(), width)?)?;
    }
    Ok(ExitCode::SUCCESS)
}
