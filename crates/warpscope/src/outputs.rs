//! The files a command writes: opened before the command runs, written after it, with the rights of the user who called sudo.

mod directory;
mod expand;
mod place;
mod stream;
pub mod view;

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufWriter, IsTerminal, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use analysis::{Events, Flames, View};
use anyhow::{Context, bail};
use collect::command::user::User;
use export::{Format, formats::parquet};
use model::{filter::Filter, recording::Writer};
use text::names::printable;

use crate::{progress::Progress, recordings::Recordings, say::say, status_line};
use place::{Name, Place, Unfinished};

/// The most runs whose default outputs are kept in one directory.
const MOST_RUNS: u32 = 10_000;

/// Files to write.
#[derive(Debug)]
pub struct Outputs {
    outputs: Vec<Output>,
    /// The outputs have default names: a number is added if files of an earlier run exist.
    numbered: bool,
    /// Where the events are.
    source: Option<Recordings>,
    /// The events to use, if not all.
    filter: Option<Arc<Filter>>,
    /// The recording under its temporary name.
    begun: Option<Unfinished>,
    /// Files to be replaced are kept under another name.
    keeps: bool,
    /// The terminal shows which file is being written.
    shows_progress: bool,
}

#[derive(Debug)]
struct Output {
    format: Format,
    /// As given by the user, for messages.
    path: PathBuf,
    place: Place,
    /// Bytes written, once it is complete.
    size: Option<u64>,
}

impl Outputs {
    /// Opens the places of `paths`, whose placeholders are replaced, or of the defaults. Rejects unknown formats and places that are not writable.
    pub fn open(paths: &[PathBuf], defaults: &[&str], user: Option<&User>) -> anyhow::Result<Self> {
        Self::open_as(None, &expanded(paths)?, defaults, user)
    }

    /// The same, with the format of outputs whose name does not select one. `-` is the standard output.
    pub fn open_as(
        format: Option<Format>,
        paths: &[PathBuf],
        defaults: &[&str],
        user: Option<&User>,
    ) -> anyhow::Result<Self> {
        match paths {
            [] => Self::open_numbered(paths, defaults, user),
            paths => Self::open_all(format, paths.to_vec(), false, user),
        }
    }

    /// Opens places for one of several runs: a number is added to each name if files with these names exist.
    pub fn open_numbered(paths: &[PathBuf], defaults: &[&str], user: Option<&User>) -> anyhow::Result<Self> {
        let defaults = || defaults.iter().map(PathBuf::from).collect();
        Self::open_all(None, if paths.is_empty() { defaults() } else { expanded(paths)? }, true, user)
    }

    fn open_all(
        format: Option<Format>,
        paths: Vec<PathBuf>,
        numbered: bool,
        user: Option<&User>,
    ) -> anyhow::Result<Self> {
        let mut outputs: Vec<Output> = Vec::new();
        let mut seen = BTreeSet::new();
        for path in paths {
            let stdout = path.as_os_str() == "-" || path.as_os_str() == "/dev/stdout";
            let path = if stdout { PathBuf::from("/dev/stdout") } else { path };
            let format = match (Format::from_path(&path), format) {
                (Ok(format), _) | (Err(_), Some(format)) => format,
                (Err(_), None) if stdout => {
                    bail!("choose the format of the standard output: --format folded, csv, jsonl, ...")
                }
                (Err(error), None) => return Err(error.into()),
            };
            if stdout && numbered {
                bail!("several dumps cannot be written to the standard output: give the name of a file");
            }
            if stdout && format.is_directory() {
                bail!("a {} output is a directory of files: give its name", format.extension());
            }
            if stdout && !format.is_text() && io::stdout().is_terminal() {
                bail!("a {} file is not text: write it to a file or a pipe", format.extension());
            }
            if !seen.insert(path.clone()) {
                bail!("{} is given twice", path.display());
            }
            if format == Format::Recording && outputs.iter().any(|output| output.format == Format::Recording) {
                bail!("only one recording can be written: give one .wscope file");
            }
            let place = match numbered {
                true => Place::open_default(&path, user),
                false if format.is_directory() => Place::open_directory(&path, &parquet::FILES, user),
                false => Place::open(&path, user),
            }?;
            outputs.push(Output { format, path, place, size: None });
        }
        Ok(Self { outputs, numbered, source: None, filter: None, begun: None, keeps: false, shows_progress: true })
    }

    /// Creates the recording: as `NAME.partial` if a `.wscope` file is requested, otherwise in an unnamed file.
    pub fn recording(&mut self) -> anyhow::Result<(File, PathBuf)> {
        if self.numbered {
            self.begun = self.take_number()?;
        } else if let Some((name, path)) = self.recording_name() {
            let begun = name.begin_recording();
            self.begun = Some(begun.with_context(|| format!("cannot create {}.partial", path.display()))?);
        }
        let (file, path) = match (&self.begun, self.recording_name()) {
            (Some(begun), Some((_, path))) => (begun.file.try_clone()?, path.to_owned()),
            _ => {
                let nameless = self.outputs.iter().find_map(|output| match &output.place {
                    Place::Name(name) => name.nameless().ok(),
                    Place::Stream(_) => None,
                });
                let file = nameless.map_or_else(tempfile::tempfile, Ok);
                (file.context("cannot create a temporary file for the recording")?, "(temporary)".into())
            }
        };
        self.source = Some(Recordings::of(path.clone(), file.try_clone()?));
        Ok((file, path))
    }

    /// Gives the default outputs the lowest number not used by an earlier run, and creates the recording under it. Of
    /// two runs that start at the same time, one gets the next number.
    fn take_number(&mut self) -> anyhow::Result<Option<Unfinished>> {
        let defaults: Vec<PathBuf> = self.outputs.iter().map(|output| output.path.clone()).collect();
        for number in 1..=MOST_RUNS {
            for (output, default) in self.outputs.iter_mut().zip(&defaults) {
                output.path = numbered(default, number);
                if let Place::Name(name) = &mut output.place {
                    name.rename(output.path.file_name().unwrap_or_default().to_owned());
                }
            }
            if self.outputs.iter().any(|output| matches!(&output.place, Place::Name(name) if name.is_taken())) {
                continue;
            }
            let Some((name, path)) = self.recording_name() else { return Ok(None) };
            match name.begin_first() {
                Ok(begun) => return Ok(Some(begun)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot create {}.partial", path.display())),
            }
        }
        bail!("this directory contains the outputs of {MOST_RUNS} runs: remove some, or choose file names with -o")
    }

    /// Uses existing recordings as the source of events.
    pub fn read_from(&mut self, source: Recordings, filter: Option<Arc<Filter>>) -> anyhow::Result<()> {
        if filter.is_some() && self.outputs.iter().any(|output| output.format == Format::Recording) {
            bail!("a recording is copied as a whole: --rank and other filters cannot be used with a .wscope file");
        }
        let is_input = |output: &&Output| source.files().any(|file| output.place.is(file));
        if let Some(output) = self.outputs.iter().find(is_input) {
            bail!("{} is the recording itself", output.path.display());
        }
        self.source = Some(source);
        self.filter = filter;
        Ok(())
    }

    /// Whether one of the outputs has steps.
    pub fn has_steps(&self) -> bool {
        self.outputs.iter().any(|output| matches!(output.format, Format::Html | Format::Parquet))
    }

    /// Returns the path of the recording, if one is requested.
    pub fn recording_path(&self) -> Option<&Path> {
        self.recording_name().map(|(_, path)| path)
    }

    fn recording_name(&self) -> Option<(&Name, &Path)> {
        self.outputs.iter().find_map(|output| match &output.place {
            Place::Name(name) if output.format == Format::Recording => Some((name, output.path.as_path())),
            _ => None,
        })
    }

    /// Removes the unfinished recording, because the command never ran.
    pub fn remove_recording(&self) {
        if let (Some(begun), Some((name, _))) = (&self.begun, self.recording_name()) {
            name.discard(begun);
        }
    }

    /// Keeps files that will be replaced, as `NAME.old`: this run recorded nothing of value.
    pub fn keep_existing(&mut self) {
        self.keeps = true;
    }

    /// Does not show on the terminal which file is being written.
    pub fn hide_progress(&mut self) {
        self.shows_progress = false;
    }

    /// Writes every file. Failures are reported and the other files are still written; returns `true` if nothing
    /// failed. Formats made from events are as complete as the recording; an incomplete one is reported.
    pub fn write(&mut self, flames: &Flames<'_>, view: View, recording_is_whole: bool) -> bool {
        let mut whole = true;
        for index in 0..self.outputs.len() {
            let Output { format, path, .. } = &self.outputs[index];
            if !recording_is_whole && format.needs_events() {
                say(format_args!("{} is incomplete, because the recording is", path.display()));
            }
            let mut kept = None;
            if self.keeps
                && let Place::Name(name) = &self.outputs[index].place
            {
                match name.set_aside() {
                    Ok(existing) => kept = existing.map(|existing| (name, existing)),
                    Err(error) => {
                        say(format_args!("{} is not replaced: it cannot be renamed: {error}", path.display()));
                        whole = false;
                        continue;
                    }
                }
            }
            match self.write_one(&self.outputs[index], flames, view) {
                Ok(size) => {
                    if let Some((_, kept)) = kept {
                        let (path, kept) = (path.display(), kept.display());
                        say(format_args!("this run recorded nothing: the previous {path} is kept as {kept}"));
                    }
                    self.outputs[index].size = Some(size);
                }
                Err(error) => {
                    if let Some((name, kept)) = kept {
                        name.put_back(&kept);
                    }
                    say(format_args!("cannot write {}: {error}", path.display()));
                    whole = false;
                }
            }
        }
        whole
    }

    fn write_one(&self, output: &Output, flames: &Flames<'_>, view: View) -> io::Result<u64> {
        // A stream may be the same terminal.
        let _progress = (self.shows_progress && matches!(output.place, Place::Name(_))).then(|| {
            Progress::begin(format!("writing {}", output.path.display()), self.source.as_ref().map(Recordings::reading))
        });
        match (output.format, &output.place, &self.begun) {
            (Format::Recording, Place::Name(name), Some(begun)) => {
                name.finish(begun)?;
                Ok(begun.file.metadata()?.len())
            }
            (Format::Recording, place, _) => place.write(|out| {
                let source = self.source.as_ref().ok_or(io::ErrorKind::NotFound)?;
                let mut files = source.files();
                match (files.next(), files.next()) {
                    (Some(mut file), None) => {
                        file.rewind()?;
                        io::copy(&mut file, out).map(drop)
                    }
                    _ => write_recording(source.events(None)?, out),
                }
            }),
            (Format::Parquet, Place::Name(name), _) => name.write_directory(&parquet::FILES, |create| {
                parquet::write(flames.profile, view, self.events()?, create)
            }),
            (format, place, _) => place.write(|out| {
                let mut out = BufWriter::with_capacity(1 << 20, out);
                export::write(format, flames, view, &mut || self.events(), &mut out)?;
                out.flush()
            }),
        }
    }

    /// Returns the events of the recording, from its beginning.
    pub fn events(&self) -> io::Result<Events<'static>> {
        self.source.as_ref().ok_or(io::ErrorKind::NotFound)?.events(self.filter.clone())
    }

    /// Returns the files that were written.
    pub fn written(&self) -> impl Iterator<Item = &Path> {
        self.sizes().map(|(path, _)| path)
    }

    /// Returns the files that were written, and their sizes.
    fn sizes(&self) -> impl Iterator<Item = (&Path, u64)> {
        let files = self.outputs.iter().filter(|output| output.path.as_os_str() != "/dev/stdout");
        files.filter_map(|output| Some((output.path.as_path(), output.size?)))
    }

    /// Prints which files were written.
    pub fn announce(&self, out: &mut dyn Write) -> io::Result<()> {
        let _erased = status_line::erase();
        for (path, size) in self.sizes() {
            writeln!(out, "wrote {}  ({})", printable(&path.display().to_string()), text::units::bytes(size))?;
        }
        Ok(())
    }
}

/// Writes one file, or the standard output for `-`, with the rights of the user who called sudo, and says so.
pub fn write_file(
    path: &Path,
    user: Option<&User>,
    contents: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return contents(&mut io::stdout().lock()).context("cannot write to the standard output");
    }
    let path = expand::expand(path)?;
    let size = Place::open(&path, user)?.write(contents).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}  ({})", printable(&path.display().to_string()), text::units::bytes(size));
    Ok(())
}

/// Replaces the placeholders of names.
fn expanded(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    paths.iter().map(|path| expand::expand(path)).collect()
}

/// Returns a name with the number of a run: `warpscope.html`, `warpscope-2.html`.
fn numbered(default: &Path, number: u32) -> PathBuf {
    let name = default.file_name().unwrap_or_default().to_string_lossy();
    match name.split_once('.') {
        Some((stem, ending)) if number > 1 => default.with_file_name(format!("{stem}-{number}.{ending}")),
        _ => default.to_owned(),
    }
}

/// Writes events as a recording.
fn write_recording(events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 20, out)).map_err(io::Error::other)?;
    for event in events {
        writer.push(&event).map_err(io::Error::other)?;
    }
    writer.finish().map_err(io::Error::other)?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(paths: &[&str]) -> String {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        format!("{:#}", Outputs::open(&paths, &[], None).expect_err("refused"))
    }

    /// Check that unusable outputs are rejected with a message before anything runs.
    #[test]
    fn unusable_outputs_are_rejected() {
        assert!(refusal(&["x.pdf"]).contains(&Format::extensions()));
        assert!(refusal(&["/nowhere/at/all/x.svg"]).contains("the directory /nowhere/at/all: No such file"));
        assert!(refusal(&["x.svg", "x.svg"]).contains("given twice"));
        assert!(refusal(&["a.wscope", "b.wscope"]).contains("one recording"));
    }
}
