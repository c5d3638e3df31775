//! `explain`: what findings, frames, metrics and words mean.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use analysis::explain::{self, Entry, Kind};
use anyhow::bail;
use monitor::openmetrics::{Definition, definitions, measured};
use terminal::Style;
use text::{did_you_mean, names::printable};

use crate::args;

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

/// Returns all explanations.
pub fn entries() -> Vec<Entry> {
    let metric = |definition: &Definition| {
        let Definition { name, help, .. } = *definition;
        let measured = measured(definition);
        Entry {
            kind: Kind::Metric,
            name,
            also: &[],
            means: help,
            measured: measured.how,
            exact: measured.exact,
            act: measured.act,
        }
    };
    explain::all().chain(definitions().map(metric)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each metric is explained by its own name and by those of its series, and that nothing hides another.
    #[test]
    fn every_metric_is_explained() {
        let entries = entries();
        for definition in definitions() {
            for name in definition.series().iter().map(String::as_str).chain([definition.name]) {
                let found = explain::find(&entries, name);
                assert!(found.iter().any(|entry| entry.name == definition.name), "{name}: {found:?}");
            }
        }
        for entry in &entries {
            assert!(explain::find(&entries, entry.name).contains(entry), "{} is not found", entry.name);
        }
    }
}
