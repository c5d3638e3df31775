//! The summary on a terminal.

use std::{
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
};

use export::{Events, Flames};
use terminal_size::{Width, terminal_size_of};

/// Prints the summary to stderr after a recording. `events` opens the recording from its beginning.
pub fn print(flames: &Flames<'_>, events: &mut dyn FnMut() -> io::Result<Events<'static>>) -> io::Result<()> {
    let text = export::report(flames, events, io::stderr().is_terminal(), width(io::stderr()))?;
    write!(io::stderr().lock(), "{text}")
}

/// Returns the width of the terminal, or 100 if there is none.
pub fn width(of: impl AsFd) -> usize {
    match terminal_size_of(of) {
        Some((Width(columns @ 40..), _)) => usize::from(columns).min(200),
        _ => 100,
    }
}
