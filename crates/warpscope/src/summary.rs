//! The summary after a recording.

use std::io::{self, Write};

use analysis::{Events, Flames};
use terminal::Style;

use crate::progress::Progress;

/// Prints the summary to stderr. `events` opens the recording from its beginning.
pub fn print(flames: &Flames<'_>, events: &mut dyn FnMut() -> io::Result<Events<'static>>) -> io::Result<()> {
    let style = Style::of(&io::stderr());
    let progress = Progress::begin("summarising".to_owned(), None);
    let text = terminal::report(flames, events, style.colour, style.width)?;
    drop(progress);
    write!(io::stderr().lock(), "{}", style.text(&text))
}
