//! Where events go: into the recording on disk, into the fold that will be the profile, and to the terminal if asked.

use std::{
    fs::File,
    io::{self, BufWriter, Stderr, Write},
    path::PathBuf,
};

use export::trace::Lines;

use model::{
    event::{End, Event, Note, Stack, StackId},
    fold::Fold,
    profile::Profile,
    recording::{WriteError, Writer},
};
use symbols::{Kept, Wishes};

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

/// Takes every event of a recording.
pub struct Recording {
    fold: Fold,
    writer: Option<Writer<File>>,
    path: PathBuf,
    failure: Option<String>,
    live: Option<(Lines, BufWriter<Stderr>)>,
}

impl Recording {
    /// Records to `file`, named `path` in messages.
    pub fn new(file: File, path: PathBuf) -> Result<Self, WriteError> {
        let writer = Writer::new(file)?;
        Ok(Self { fold: Fold::new(), writer: Some(writer), path, failure: None, live: None })
    }

    /// From now on, prints what is taken.
    pub fn print(&mut self, lines: Lines) {
        self.live = Some((lines, BufWriter::new(io::stderr())));
    }

    /// The recording ends here, but the profile and what is made of it go on.
    fn fail(&mut self, error: &WriteError) {
        self.writer = None;
        self.failure = Some(format!("{}: {error}", self.path.display()));
    }

    /// Ends the recording: names every address, writes the names and the end. Returns the profile, and what went wrong
    /// with the recording.
    pub fn finish(mut self, end: End, kept: &mut Kept, wishes: &Wishes) -> (Profile, Option<String>) {
        self.show();
        let mut fold = std::mem::take(&mut self.fold);
        fold.push(&Event::End(end));
        let mut profile = fold.finish();
        let symbols::Named { symbols, notes } = symbols::resolve(&profile, kept, wishes);
        if let Some(mut writer) = self.writer.take() {
            let written = symbols
                .iter()
                .try_for_each(|symbol| writer.push(&Event::Symbol(symbol.clone())))
                .and_then(|()| notes.iter().try_for_each(|text| writer.push(&Event::Note(Note { text: text.clone() }))))
                .and_then(|()| writer.push(&Event::End(end)))
                .and_then(|()| writer.finish().map(drop));
            if let Err(error) = written {
                self.fail(&error);
            }
        }
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
        if let Some((lines, out)) = &mut self.live
            && lines.push(event, out).is_err()
        {
            self.live = None;
        }
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.push(event)
        {
            self.fail(&error);
        }
    }

    /// The stack with this id, if it has come.
    fn stack(&self, id: StackId) -> Option<&Stack> {
        self.fold.known_stack(id)
    }

    /// Brings what was taken so far to the disk, so that a crash cannot lose it.
    fn flush(&mut self) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.flush()
        {
            self.fail(&error);
        }
    }

    /// Brings what was printed to the terminal. Where nobody reads it any more, nothing is printed any more.
    fn show(&mut self) {
        if self.live.as_mut().is_some_and(|(_, out)| out.flush().is_err()) {
            self.live = None;
        }
    }
}
