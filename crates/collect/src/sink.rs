//! Where events go: into the recording on disk, into the fold that will be the profile, and to the terminal if asked.

use std::{fs::File, io, path::PathBuf, time::SystemTime};

use model::{
    event::{End, Event, Loss, LossCause, Mode, Note, Stack, StackId, Start},
    fold::Fold,
    profile::Profile,
    recording::{WriteError, Writer},
};
use symbols::Kept;

/// The first event of a recording that begins now.
pub fn start(command: Vec<String>, mode: Mode, frequency: u32) -> Start {
    Start {
        time: bpf::now(),
        wall_clock: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64),
        version: env!("CARGO_PKG_VERSION").into(),
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into(),
        command,
        mode,
        frequency,
    }
}

/// Takes every event that is collected.
pub trait Sink {
    /// Takes one event.
    fn push(&mut self, event: &Event);

    /// The stack with this id, if it has come and is kept.
    fn stack(&self, id: StackId) -> Option<&Stack>;

    /// Brings what was taken so far to where a crash cannot lose it.
    fn flush(&mut self) {}

    /// Shows what was taken so far to whoever watches.
    fn show(&mut self) {}
}

/// Prints events as they come. After an error nothing more is printed.
pub trait Printer {
    /// Prints one event, if it is of interest.
    fn print(&mut self, event: &Event) -> io::Result<()>;

    /// Brings what was printed to its reader.
    fn flush(&mut self) -> io::Result<()>;
}

/// Takes every event of a recording.
pub struct Recording {
    fold: Fold,
    writer: Writer<File>,
    path: PathBuf,
    failure: Option<String>,
    printer: Option<Box<dyn Printer>>,
}

impl Recording {
    /// Records to `file`, named `path` in messages.
    pub fn new(file: File, path: PathBuf) -> Result<Self, WriteError> {
        let writer = Writer::new(file)?;
        Ok(Self { fold: Fold::new(), writer, path, failure: None, printer: None })
    }

    /// From now on, prints what is taken.
    pub fn print(&mut self, printer: Box<dyn Printer>) {
        self.printer = Some(printer);
    }

    /// After an error the recording ends, but the profile and what is made of it go on. The writer counts what it leaves out.
    fn written(&mut self, result: Result<(), WriteError>) {
        if let Err(error) = result {
            self.failure = Some(format!("{}: {error}", self.path.display()));
        }
    }

    /// Ends the recording: names every address, writes the names and the end. Returns the profile, and what went wrong
    /// with the recording.
    pub fn finish(mut self, end: End, kept: &mut Kept, options: &symbols::Options) -> (Profile, Option<String>) {
        self.show();
        let mut fold = std::mem::take(&mut self.fold);
        fold.push(&Event::End(end));
        let mut profile = fold.finish();
        let symbols::Named { symbols, notes } = symbols::resolve(&profile, kept, options);
        let named = symbols.iter().map(|symbol| Event::Symbol(symbol.clone()));
        for event in named.chain(notes.iter().map(|text| Event::Note(Note { text: text.clone() }))) {
            let written = self.writer.push(&event);
            self.written(written);
        }
        let dropped = self.writer.dropped();
        let cause = LossCause::EventsNotWritten;
        let lost = (dropped > 0).then_some(Event::Loss(Loss { cause, count: dropped }));
        for event in lost.into_iter().chain([Event::End(end)]) {
            let written = self.writer.push(&event);
            self.written(written);
        }
        let written = self.writer.flush();
        self.written(written);
        *profile.ledger.lost.causes.entry(cause).or_default() += self.writer.dropped();
        profile.notes.extend(notes);
        for symbol in symbols {
            profile.symbols.add(symbol);
        }
        symbols::name_kernels(&mut profile);
        (profile, self.failure)
    }
}

impl Sink for Recording {
    /// Takes one event.
    fn push(&mut self, event: &Event) {
        self.fold.push(event);
        if self.printer.as_mut().is_some_and(|printer| printer.print(event).is_err()) {
            self.printer = None;
        }
        let written = self.writer.push(event);
        self.written(written);
    }

    /// The stack with this id, if it has come.
    fn stack(&self, id: StackId) -> Option<&Stack> {
        self.fold.known_stack(id)
    }

    /// Brings what was taken so far to the disk, so that a crash cannot lose it.
    fn flush(&mut self) {
        let written = self.writer.flush();
        self.written(written);
    }

    /// Brings what was printed to the terminal. Where nobody reads it any more, nothing is printed any more.
    fn show(&mut self) {
        if self.printer.as_mut().is_some_and(|printer| printer.flush().is_err()) {
            self.printer = None;
        }
    }
}
