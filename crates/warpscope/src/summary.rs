//! The summary after a recording.

use std::io::{self, Write};

use export::{Events, Flames};

use crate::terminal::Style;

/// Prints the summary to stderr. `events` opens the recording from its beginning.
pub fn print(flames: &Flames<'_>, events: &mut dyn FnMut() -> io::Result<Events<'static>>) -> io::Result<()> {
    let style = Style::of(&io::stderr());
    let text = export::report(flames, events, style.colour, style.width)?;
    write!(io::stderr().lock(), "{}", style.text(&text))
}
