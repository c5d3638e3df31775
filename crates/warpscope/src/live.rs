//! `--live`: prints events as they arrive.

use std::io::{self, BufWriter, Write};

use analysis::{CallView, trace::live::Live as Events};
use collect::sink::Printer;
use export::LiveLines;
use model::event::Event;
use terminal::{Lines, Style};
use text::pattern::Selection;

/// Requests lines of JSON instead of text.
pub const JSON: &str = "json";

/// What is printed, where and how.
pub struct Wanted {
    filter: Selection,
    calls: CallView,
    json: bool,
    to_stdout: bool,
}

impl Wanted {
    /// Interprets the value of `--live`. Without outputs and a command, the lines are the main output; but they are not mixed with
    /// the output of a command.
    pub fn new(pattern: &str, calls: CallView, to_stdout: bool) -> anyhow::Result<Self> {
        let json = pattern == JSON;
        let patterns = if json { Vec::new() } else { vec![pattern.to_owned()] };
        Ok(Self { filter: Selection::parse(&patterns, &[])?, calls, json, to_stdout })
    }
}

/// How events are printed.
enum Form {
    Text(Lines),
    Json(LiveLines),
}

/// Prints to stdout or stderr.
pub struct Live {
    form: Form,
    out: BufWriter<Box<dyn Write + Send>>,
}

impl Live {
    /// Creates a printer, with times since `start`.
    pub fn new(start: u64, wanted: Wanted) -> Self {
        let (out, style): (Box<dyn Write + Send>, Style) = match wanted.to_stdout {
            true => (Box::new(io::stdout()), Style::of(&io::stdout())),
            false => (Box::new(io::stderr()), Style::of(&io::stderr())),
        };
        let events = Events::new(symbols::readable).filtered(wanted.filter).viewed(wanted.calls);
        let form = match wanted.json {
            true => Form::Json(LiveLines::new(events, start)),
            false => Form::Text(Lines::new(events, start, style.colour)),
        };
        Self { form, out: BufWriter::new(out) }
    }
}

impl Printer for Live {
    fn print(&mut self, event: &Event) -> io::Result<()> {
        match &mut self.form {
            Form::Text(lines) => lines.push(event, &mut self.out),
            Form::Json(lines) => lines.push(event, &mut self.out),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
