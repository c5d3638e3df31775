//! `report`: what a recording amounts to.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use export::{Events, Summary};
use model::profile::Profile;

use crate::{
    args,
    load::{Loaded, load},
    outputs::events,
};

/// Runs the command.
pub fn run(options: &args::Report) -> anyhow::Result<ExitCode> {
    let Loaded { file, profile } = load(&options.recording)?;
    let mut out = io::stdout().lock();
    let width = width(libc::STDOUT_FILENO);
    let mut events = || events(&file);
    if options.json {
        let summary = Summary::with_events(&profile, &mut events, width)?;
        serde_json::to_writer_pretty(&mut out, &summary).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", export::report(&profile, &mut events, io::stdout().is_terminal(), width)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the summary to stderr, after a recording; `events` opens it from its beginning.
pub fn print(profile: &Profile, events: &mut dyn FnMut() -> io::Result<Events<'static>>) -> io::Result<()> {
    let text = export::report(profile, events, io::stderr().is_terminal(), width(libc::STDERR_FILENO))?;
    write!(io::stderr().lock(), "{text}")
}

/// Columns of the terminal, or 100 where there is none.
fn width(fd: libc::c_int) -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the answer is written to a struct of the right type.
    let answer = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) };
    if answer == 0 && size.ws_col >= 40 { usize::from(size.ws_col).min(200) } else { 100 }
}
