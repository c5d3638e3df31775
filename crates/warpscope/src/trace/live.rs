//! `--live`: prints calls as they arrive.

use std::io::{self, BufWriter, Write};

use collect::sink::Printer;
use export::trace::{Form, Lines};
use model::event::Event;
use text::pattern::Selection;

use crate::{args, terminal::Style};

/// Requests lines of JSON instead of text.
const JSON: &str = "json";

/// What is printed, where and how.
pub struct Wanted {
    filter: Selection,
    json: bool,
    to_stdout: bool,
}

impl Wanted {
    /// Interprets the options: `None` if nothing is printed.
    pub fn new(options: &args::Trace) -> anyhow::Result<Option<Self>> {
        let Some(pattern) = &options.live else { return Ok(None) };
        let json = pattern == JSON;
        let filter =
            if json { Selection::parse(&[], &[]) } else { Selection::parse(std::slice::from_ref(pattern), &[]) }?;
        // Without -o the lines are the main output; but they are not mixed with the output of a command.
        let to_stdout = options.output.is_empty() && options.command.is_empty();
        Ok(Some(Self { filter, json, to_stdout }))
    }
}

/// Prints to stdout or stderr.
pub struct Live {
    lines: Lines,
    out: BufWriter<Box<dyn Write + Send>>,
}

impl Live {
    /// Creates a printer, with times since `start`.
    pub fn new(start: u64, wanted: Wanted) -> Self {
        let (out, style): (Box<dyn Write + Send>, Style) = match wanted.to_stdout {
            true => (Box::new(io::stdout()), Style::of(&io::stdout())),
            false => (Box::new(io::stderr()), Style::of(&io::stderr())),
        };
        let form = if wanted.json { Form::Json } else { Form::Text { colour: style.colour } };
        let lines = Lines::new(form, start, symbols::readable).filtered(wanted.filter);
        Self { lines, out: BufWriter::new(out) }
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
