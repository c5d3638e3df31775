//! The summary on a terminal.

use std::io::{self, IsTerminal, Write};

use export::Events;
use model::profile::Profile;

/// Prints the summary to stderr, after a recording; `events` opens it from its beginning.
pub fn print(profile: &Profile, events: &mut dyn FnMut() -> io::Result<Events<'static>>) -> io::Result<()> {
    let text = export::report(profile, events, io::stderr().is_terminal(), width(libc::STDERR_FILENO))?;
    write!(io::stderr().lock(), "{text}")
}

/// Columns of the terminal, or 100 where there is none.
pub fn width(fd: libc::c_int) -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the answer is written to a struct of the right type.
    let answer = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) };
    if answer == 0 && size.ws_col >= 40 { usize::from(size.ws_col).min(200) } else { 100 }
}
