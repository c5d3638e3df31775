//! `report`: what a recording amounts to.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use export::Summary;
use model::profile::Profile;

use crate::{args, load::load};

/// Runs the command.
pub fn run(options: &args::Report) -> anyhow::Result<ExitCode> {
    let profile = load(&options.recording)?.profile;
    let mut out = io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &Summary::of(&profile)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        let colour = io::stdout().is_terminal();
        write!(out, "{}", export::summary::render(&Summary::of(&profile), colour, width(libc::STDOUT_FILENO)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the summary to stderr, after a recording.
pub fn print(profile: &Profile) -> io::Result<()> {
    let colour = io::stderr().is_terminal();
    let text = export::summary::render(&Summary::of(profile), colour, width(libc::STDERR_FILENO));
    write!(io::stderr().lock(), "{text}")
}

/// Columns of the terminal, or 100 where there is none.
fn width(fd: libc::c_int) -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the answer is written to a struct of the right type.
    let answer = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) };
    if answer == 0 && size.ws_col >= 40 { usize::from(size.ws_col).min(200) } else { 100 }
}
