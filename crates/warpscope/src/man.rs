//! `man`: the manual pages, generated from the same definitions as `--help`.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

use crate::args;

/// Runs the command. `root` is the definition of the command line.
pub fn run(options: &args::Man, root: Command) -> anyhow::Result<ExitCode> {
    // Without the `help` subcommand, which has no page of its own.
    let mut root = root.disable_help_subcommand(true);
    root.build();
    if let Some(directory) = &options.dir {
        write_all(&root, directory).with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let command = match &options.command {
        None => &root,
        Some(name) => match root.find_subcommand(name) {
            Some(command) => command,
            None => {
                let names: Vec<&str> = root.get_subcommands().map(Command::get_name).collect();
                bail!("there is no command {name}; there are: {}", names.join(", "));
            }
        },
    };
    io::stdout().write_all(&page(command)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes `warpscope.1`, `warpscope-record.1` and so on.
fn write_all(root: &Command, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for command in std::iter::once(root).chain(root.get_subcommands()) {
        fs::write(directory.join(Man::new(command.clone()).get_filename()), page(command)?)?;
    }
    Ok(())
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let source = concat!("warpscope ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("warpscope");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(text) = command.get_after_long_help().or(command.get_after_help()) {
        notes(&text.to_string()).to_writer(&mut out)?;
    }
    Ok(out)
}

/// Formats the text below the options: a line such as `Examples:` becomes a section, indented lines keep their line breaks.
fn notes(text: &str) -> Roff {
    let mut roff = Roff::new();
    let (mut in_section, mut verbatim) = (false, false);
    for line in text.lines() {
        let heading = line.strip_suffix(':').filter(|word| !word.contains(' '));
        let keep = line.starts_with(' ');
        if keep != verbatim {
            roff.control(if keep { "nf" } else { "fi" }, []);
            verbatim = keep;
        }
        if let Some(word) = heading {
            roff.control("SH", [word.to_uppercase().as_str()]);
            in_section = true;
            continue;
        }
        if !in_section {
            roff.control("SH", ["NOTES"]);
            in_section = true;
        }
        match line {
            "" => roff.control("PP", []),
            line => roff.text([roman(line)]),
        };
    }
    if verbatim {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that headings become sections, that prose is filled, and that indented lines keep their breaks and leading dots.
    #[test]
    fn notes_have_sections() {
        let text = "Prose that\ncontinues.\n\nExamples:\n  run it\n  .wscope  a file";
        let rendered = notes(text).to_roff();
        let expected = ".SH NOTES\nProse that\ncontinues.\n.PP\n.SH EXAMPLES\n.nf\n  run it\n  .wscope  a file\n.fi\n";
        assert_eq!(rendered, expected);
    }
}
