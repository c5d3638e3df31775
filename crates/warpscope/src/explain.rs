//! `explain`: what findings, frames, metrics and words mean.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use analysis::explain;
use anyhow::bail;
use terminal::Style;
use text::{did_you_mean, names::printable};

use crate::{args, explanations::entries};

/// Runs the command.
pub fn run(options: &args::Explain) -> anyhow::Result<ExitCode> {
    let entries = entries();
    let mut out = io::stdout().lock();
    let term = options.term.join(" ");
    if term.is_empty() {
        for entry in entries {
            writeln!(out, "{:<13} {}", entry.kind.text(), entry.name)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let found = explain::find(&entries, &term);
    if found.is_empty() {
        let similar = did_you_mean(&explain::similar(&entries, &term));
        bail!("there is no explanation of `{}`{similar}; `warpscope explain` lists all", printable(&term));
    }
    let style = Style::of(&io::stdout());
    write!(out, "{}", style.text(&terminal::explanations(&found, style.colour, style.width)))?;
    Ok(ExitCode::SUCCESS)
}
