//! Where events go: the recording on disk, the profile, and the terminal if requested.
//!
//! If the disk fills up, the recording ends there, complete up to its last chunk; the profile and the other outputs
//! continue, and the exit status reports the failure. If no recording was requested, one is written to an unnamed
//! temporary file, because some formats read it a second time.

mod room;

use std::{borrow::Cow, fs::File, io, path::PathBuf, time::SystemTime};

use model::{
    calls::Calls,
    event::{End, Event, Loss, LossCause, Mapping, Mode, Note, ProcessId, Stack, StackId, Start},
    fold::Fold,
    profile::Profile,
    recording::{WriteError, Writer},
};
use symbols::Kept;

use self::room::Room;
use crate::{
    disassembly::{self, Disassembly},
    source_lines,
};

/// Returns the first event of a recording that begins now.
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

/// Receives every collected event.
pub trait Sink {
    /// Handles one event.
    fn push(&mut self, event: &Event);

    /// Returns the stack with this id, if it has arrived and is kept.
    fn stack(&self, id: StackId) -> Option<Cow<'_, Stack>>;

    /// Returns the process of that stack.
    fn owner(&self, id: StackId) -> Option<ProcessId> {
        self.stack(id).map(|stack| stack.process)
    }

    /// Whether no further stacks of a process are kept.
    fn is_full(&self, _process: ProcessId) -> bool {
        false
    }

    /// Whether a mapping is kept.
    fn takes_mapping(&mut self, _mapping: &Mapping) -> bool {
        true
    }

    /// Flushes events to storage that survives a crash.
    fn flush(&mut self) {}

    /// Shows the events so far on the terminal.
    fn show(&mut self) {}

    /// Called after each round. `signalled`: a signal requested a dump.
    fn round(&mut self, _signalled: bool, _kept: &Kept) {}

    /// Whether there are so many stacks that some must be removed.
    fn must_forget(&self) -> bool {
        false
    }

    /// Removes stacks that are no longer needed, and returns them. `None` if there is room, or if all are kept.
    fn forget_stacks(&mut self) -> Option<Vec<(ProcessId, StackId)>> {
        None
    }

    /// Returns the traced calls so far, if they are kept.
    fn calls(&self) -> Option<&Calls> {
        None
    }

    /// Whether losses are reported every second, and not only at the end.
    fn wants_losses(&self) -> bool {
        false
    }
}

/// Prints events as they arrive.
pub trait Printer {
    /// Prints one event, if it is of interest.
    fn print(&mut self, event: &Event) -> io::Result<()>;

    /// Flushes the output.
    fn flush(&mut self) -> io::Result<()>;
}

/// A printer, if there is one. After an error nothing more is printed.
#[derive(Default)]
pub struct Display(pub Option<Box<dyn Printer>>);

impl Display {
    /// Prints one event.
    pub fn print(&mut self, event: &Event) {
        self.after(|printer| printer.print(event));
    }

    /// Flushes the output.
    pub fn flush(&mut self) {
        self.after(|printer| printer.flush());
    }

    fn after(&mut self, action: impl FnOnce(&mut dyn Printer) -> io::Result<()>) {
        if self.0.as_mut().is_some_and(|printer| action(&mut **printer).is_err()) {
            self.0 = None;
        }
    }
}

/// Receives every event of a recording.
pub struct Recording {
    fold: Fold,
    room: Room,
    writer: Writer<File>,
    path: PathBuf,
    failure: Option<String>,
    display: Display,
}

impl Recording {
    /// Creates a recording in `file`, named `path` in messages.
    pub fn new(file: File, path: PathBuf) -> Result<Self, WriteError> {
        let writer = Writer::new(file)?;
        Ok(Self { fold: Fold::new(), room: Room::default(), writer, path, failure: None, display: Display::default() })
    }

    /// Prints events from now on.
    pub fn print(&mut self, printer: Box<dyn Printer>) {
        self.display = Display(Some(printer));
    }

    /// After an error the recording ends, but the profile and its outputs continue. The writer counts what it leaves
    /// out.
    fn written(&mut self, result: Result<(), WriteError>) {
        if let Err(error) = result {
            self.failure = Some(format!("{}: {error}", self.path.display()));
        }
    }

    /// Ends the recording: resolves every address, writes the names and the end. Returns the profile, and any error of
    /// the recording.
    pub fn finish(mut self, end: End, kept: &mut Kept, options: &symbols::Options) -> (Profile, Option<String>) {
        let left_out: Vec<Loss> = self.room.losses().collect();
        left_out.into_iter().for_each(|loss| self.push(&Event::Loss(loss)));
        self.show();
        self.display = Display::default();
        // Resolving names takes time: if warpscope is killed meanwhile, everything recorded is on disk.
        self.flush();
        let mut fold = std::mem::take(&mut self.fold);
        fold.push(&Event::End(end));
        let mut profile = fold.finish();
        let symbols::Named { symbols, lines, mut notes, unread } = symbols::resolve(&profile, kept, options);
        let named = symbols.iter().map(|symbol| Event::Symbol(symbol.clone()));
        let located = lines.iter().map(|lines| Event::StallLines(lines.clone()));
        let texts = source_lines::read(&lines);
        let source = texts.iter().map(|text| Event::SourceText(text.clone()));
        let Disassembly { texts: instructions, note } = disassembly::read(&profile, kept);
        notes.extend(note);
        let code = instructions.iter().map(|text| Event::InstructionText(text.clone()));
        let noted = notes.iter().map(|text| Event::Note(Note { text: text.clone() }));
        for event in named.chain(located).chain(source).chain(code).chain(noted) {
            let written = self.writer.push(&event);
            self.written(written);
        }
        let cause = LossCause::EventsNotWritten;
        let lost = [(LossCause::FilesUnread, unread.count), (cause, self.writer.dropped())];
        let lost = lost.into_iter().filter(|(_, count)| *count > 0);
        let lost = lost.map(|(cause, count)| Event::Loss(Loss { cause, count }));
        for event in lost.chain([Event::End(end)]) {
            let written = self.writer.push(&event);
            self.written(written);
        }
        let written = self.writer.flush();
        self.written(written);
        *profile.ledger.lost.causes.entry(cause).or_default() += self.writer.dropped();
        *profile.ledger.lost.causes.entry(LossCause::FilesUnread).or_default() += unread.count;
        profile.notes.extend(notes);
        for symbol in symbols {
            profile.symbols.add(symbol);
        }
        if !lines.is_empty() {
            lines.iter().for_each(|lines| profile.stalls.locate(lines));
            texts.iter().for_each(|text| profile.stalls.read(text));
            profile.ledger.stalls = profile.stall_ledger();
        }
        instructions.iter().for_each(|text| profile.stalls.disassemble(text));
        symbols::name_kernels(&mut profile);
        (profile, self.failure)
    }
}

impl Sink for Recording {
    /// Handles one event.
    fn push(&mut self, event: &Event) {
        if !self.room.takes(event, self.fold.stacks()) {
            return;
        }
        self.fold.push(event);
        self.display.print(event);
        let written = self.writer.push(event);
        self.written(written);
    }

    /// Returns the stack with this id, if it has arrived.
    fn stack(&self, id: StackId) -> Option<Cow<'_, Stack>> {
        self.fold.stacks().get(id).map(|known| Cow::Owned(known.to_stack()))
    }

    fn owner(&self, id: StackId) -> Option<ProcessId> {
        self.fold.stacks().get(id).map(|known| known.process)
    }

    fn is_full(&self, process: ProcessId) -> bool {
        self.room.is_full(process)
    }

    fn takes_mapping(&mut self, mapping: &Mapping) -> bool {
        self.room.takes_mapping(mapping)
    }

    fn calls(&self) -> Option<&Calls> {
        Some(self.fold.calls())
    }

    /// Flushes the recording to disk, so that a crash cannot lose it.
    fn flush(&mut self) {
        let written = self.writer.flush();
        self.written(written);
    }

    fn show(&mut self) {
        self.display.flush();
    }

    fn wants_losses(&self) -> bool {
        self.display.0.is_some()
    }
}
