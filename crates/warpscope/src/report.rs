//! `report`: summarises a recording.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use analysis::{Flames, Summary, Table};
use terminal::Style;

use crate::{
    args,
    load::{Find, Loaded, load},
    progress::Progress,
    say::say,
};

/// The rows of a table on a terminal, if not given.
const ROWS: usize = 20;

/// Runs the command.
pub fn run(options: &args::Report) -> anyhow::Result<ExitCode> {
    let needs_steps = options.by.is_none_or(|table| table.0 == Table::Steps);
    let find = if needs_steps { Find::Outliers } else { Find::Profile };
    let loaded = load(&options.recordings, &options.filters, find)?;
    let status = loaded.status();
    let Loaded { source, mut profile, filter, .. } = loaded;
    options.graph_stacks.apply(&mut profile);
    let mut out = io::stdout().lock();
    let style = Style::of(&io::stdout());
    let mut events = || source.events(filter.clone());
    let flames = Flames::new(&profile);
    let progress = Progress::begin("summarising".to_owned(), Some(source.reading()));
    if let Some(table) = options.by {
        if let Some(note) = profile.part_note() {
            say(note);
        }
        let mut rows = table.0.rows(&flames, &mut events)?;
        rows.rows.truncate(options.top.unwrap_or(if options.json { usize::MAX } else { ROWS }));
        drop(progress);
        if rows.rows.is_empty() && !options.json {
            say(format_args!("the table is empty: {}", table.0.filled_by()));
        } else if options.json {
            serde_json::to_writer_pretty(&mut out, &export::table::json(&rows)).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            if table.0 == Table::Steps {
                let text = terminal::steps(&profile, style.colour, style.width);
                write!(out, "{}", style.text(&text))?;
            }
            write!(out, "{}", style.text(&terminal::table(&rows, style.width)))?;
        }
    } else if options.json {
        let summary = Summary::with_events(&flames, &mut events)?;
        drop(progress);
        serde_json::to_writer_pretty(&mut out, &summary).map_err(io::Error::from)?;
        writeln!(out)?;
    } else if options.brief {
        let summary = Summary::with_events(&flames, &mut events)?;
        drop(progress);
        write!(out, "{}", terminal::brief(&summary, options.format.into()))?;
    } else {
        let text = terminal::report(&flames, &mut events, style.colour, style.width)?;
        drop(progress);
        write!(out, "{}", style.text(&text))?;
    }
    Ok(status)
}
