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

/// The rows of a table on a terminal, if not given.
const ROWS: usize = 20;

/// Runs the command.
pub fn run(options: &args::Report) -> anyhow::Result<ExitCode> {
    let Loaded { file, mut profile, filter } = load(&options.recording, &options.filters)?;
    options.graph_stacks.apply(&mut profile);
    let mut out = io::stdout().lock();
    let width = width(io::stdout());
    let mut events = || events(&file, filter.clone());
    let flames = Flames::new(&profile);
    if let Some(table) = options.by {
        let mut rows = table.0.rows(&flames, &mut events)?;
        rows.truncate(options.top.unwrap_or(if options.json { usize::MAX } else { ROWS }));
        if options.json {
            serde_json::to_writer_pretty(&mut out, &rows.json()).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            write!(out, "{}", rows.text(width))?;
        }
    } else if options.json {
        let summary = Summary::with_events(&flames, &mut events, width)?;
        serde_json::to_writer_pretty(&mut out, &summary).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", export::report(&flames, &mut events, io::stdout().is_terminal(), width)?)?;
    }
    Ok(ExitCode::SUCCESS)
}
