//! `diff`: compares recordings.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use analysis::diff::{Diff, Run, Total};
use anyhow::{Context, bail};
use collect::command::user::User;
use export::Format;
use terminal::Style;

use crate::{
    args,
    load::{Find, load},
    outputs::write_file,
    say::say,
};

/// The rows of a table on a terminal, if not given.
const ROWS: usize = 15;

/// The exit status of a comparison that fails.
const ABOVE: u8 = 3;

/// Runs the command.
pub fn run(options: &args::Diff) -> anyhow::Result<ExitCode> {
    let limit = options.fail_above.as_deref().map(percent).transpose()?;
    let (before, after) = match (&options.before[..], &options.after[..]) {
        ([before, after], []) => (std::slice::from_ref(before), std::slice::from_ref(after)),
        (_, []) => bail!("give two recordings, or several on both sides of --: diff A1 A2 -- B1 B2"),
        sides => sides,
    };
    let page = |path: &PathBuf| path.as_os_str() == "-" || Format::from_path(path) == Ok(Format::Html);
    if let Some(path) = options.output.as_ref().filter(|path| !page(path)) {
        bail!("cannot write the comparison to {}: the file name must end in .html", path.display());
    }
    let mut damaged = false;
    let mut runs = |paths: &[PathBuf]| -> anyhow::Result<Vec<Run>> {
        let run = |path: &PathBuf| {
            let mut loaded = load(std::slice::from_ref(path), &options.filters, Find::Steps)?;
            options.graph_stacks.apply(&mut loaded.profile);
            if loaded.damaged {
                damaged = true;
                loaded.profile.notes.iter().for_each(|note| say(format_args!("{}: {note}", path.display())));
            }
            let mut run = Run::of(&loaded.profile);
            run.add_steps(&loaded.profile, &mut || loaded.source.events(None))?;
            Ok(run)
        };
        paths.iter().map(run).collect()
    };
    let mut diff = Diff::of(&runs(before)?, &runs(after)?);
    let by_default = if diff.steps.is_some() { args::FailOn::Step } else { args::FailOn::Wall };
    let fail_on = options.fail_on.unwrap_or(by_default);
    if fail_on == args::FailOn::Step && diff.steps.is_none() {
        bail!("--fail-on step: not all recordings have steps of the same place");
    }
    let above = limit.and_then(|limit| match fail_on {
        args::FailOn::Step => diff.step_above(limit),
        args::FailOn::Wall => diff.above(Total::Wall, limit),
        args::FailOn::Gpu => diff.above(Total::Gpu, limit),
        args::FailOn::Cpu => diff.above(Total::Cpu, limit),
    });
    if let Some(path) = &options.output {
        let names = |side: &[PathBuf]| side.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        let (before, after) = (names(before), names(after));
        write_file(path, User::behind_sudo().as_ref(), |out| export::diff::write(&diff, [&before, &after], out))?;
        return Ok(status(above.as_deref(), damaged));
    }
    let mut out = io::stdout().lock();
    if options.json {
        diff.truncate(options.top.unwrap_or(usize::MAX));
        serde_json::to_writer_pretty(&mut out, &diff).map_err(io::Error::from)?;
        writeln!(out)?;
    } else if options.format == args::Form::Markdown {
        write!(out, "{}", terminal::verdict(&diff, above.as_deref(), options.format.into()))?;
    } else {
        let style = Style::of(&io::stdout());
        write!(out, "{}", style.text(&terminal::comparison(&diff, style.width, options.top.unwrap_or(ROWS))))?;
    }
    drop(out);
    Ok(status(above.as_deref(), damaged))
}

/// Returns the exit status, and says why the comparison fails.
fn status(above: Option<&str>, damaged: bool) -> ExitCode {
    above.inspect(|why| say(why)).map_or(ExitCode::from(u8::from(damaged)), |_| ExitCode::from(ABOVE))
}

/// Reads `3%` or `3` as 0.03.
fn percent(text: &str) -> anyhow::Result<f64> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>();
    let number = number.with_context(|| format!("--fail-above {text}: expected a percentage such as 3%"))?;
    if !(number >= 0.0 && number.is_finite()) {
        bail!("--fail-above {text}: expected a percentage such as 3%");
    }
    Ok(number / 100.0)
}
