//! `--live`: prints calls to the terminal as they arrive.

use std::io::{self, BufWriter, Stderr, Write};

use collect::sink::Printer;
use export::trace::Lines;
use model::event::Event;
use text::pattern::Selection;

use crate::terminal::Style;

/// Prints to stderr.
pub struct Live {
    lines: Lines,
    out: BufWriter<Stderr>,
}

impl Live {
    /// Creates a printer for calls of these functions, with times since `start`.
    pub fn new(start: u64, filter: Selection) -> Self {
        let colour = Style::of(&io::stderr()).colour;
        let lines = Lines::new(colour, start, symbols::demangle).filtered(filter);
        Self { lines, out: BufWriter::new(io::stderr()) }
    }
}

impl Printer for Live {
    fn print(&mut self, event: &Event) -> io::Result<()> {
        self.lines.push(event, &mut self.out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
