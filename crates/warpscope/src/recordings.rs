//! The recordings that a command reads, as one stream of events.

use std::{
    fs::File,
    io::{self, BufReader, IsTerminal, Read, Seek},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, FileTypeExt},
    },
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use analysis::Events;
use anyhow::{Context, bail};
use model::{
    clocks::Clocks,
    filter::Filter,
    merge::Merged,
    recording::{Reader, Writer},
};
use rustix::fs::fstat;

use crate::progress::Reading;

/// The events of all recordings.
pub type Recorded = Merged<Reader<Counted>>;

/// Open recordings.
#[derive(Debug)]
pub struct Recordings {
    files: Vec<(PathBuf, File)>,
    reading: Arc<Reading>,
    /// The clocks of their hosts, once they are known.
    clocks: OnceLock<Clocks>,
}

/// A file that counts what is read from it. It is not counted when it is read ahead.
#[derive(Debug)]
pub struct Counted {
    file: BufReader<File>,
    reading: Arc<Reading>,
}

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read(bytes).inspect(|length| self.reading.add(*length))
    }
}

impl Recordings {
    /// Opens recordings.
    pub fn open(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut files: Vec<(PathBuf, File)> = Vec::new();
        for path in paths {
            let cannot = || format!("cannot open {}", path.display());
            let file = match path.as_os_str() == "-" {
                true => File::from(io::stdin().as_fd().try_clone_to_owned().with_context(cannot)?),
                false => File::open(path).with_context(cannot)?,
            };
            let file = rewindable(file).with_context(|| format!("cannot read {}", path.display()))?;
            let file = recorded(file).with_context(|| format!("cannot read {}", path.display()))?;
            if let Some((other, _)) = files.iter().find(|(_, other)| is_same(other, &file)) {
                bail!("{} and {} are the same file", other.display(), path.display());
            }
            files.push((path.clone(), file));
        }
        Ok(Self { files, reading: Arc::default(), clocks: OnceLock::new() })
    }

    /// The recording that is being written.
    pub fn of(path: PathBuf, file: File) -> Self {
        Self { files: vec![(path, file)], reading: Arc::default(), clocks: OnceLock::new() }
    }

    /// Sets the clocks of the hosts: what is read from now on has corrected times.
    pub fn set_clocks(&self, clocks: Clocks) {
        let _ = self.clocks.set(clocks);
    }

    /// Returns the clocks of the hosts, if they are known.
    pub fn clocks(&self) -> Option<&Clocks> {
        self.clocks.get()
    }

    /// Returns how much has been read.
    pub fn reading(&self) -> Arc<Reading> {
        self.reading.clone()
    }

    /// Names the recordings.
    pub fn name(&self) -> String {
        match self.files.as_slice() {
            [(path, _)] => path.display().to_string(),
            files => format!("{} recordings", files.len()),
        }
    }

    /// Returns the files.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().map(|(_, file)| file)
    }

    /// Reads all recordings from their beginning.
    pub fn read(&self) -> anyhow::Result<Recorded> {
        self.reading.begin(self.files().filter_map(|file| file.metadata().ok()).map(|info| info.len()).sum());
        let open = |(path, file): &(PathBuf, File)| {
            let mut file = file.try_clone()?;
            file.rewind()?;
            let file = Counted { file: BufReader::with_capacity(1 << 20, file), reading: self.reading() };
            Reader::new(file).with_context(|| path.display().to_string())
        };
        let readers = self.files.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Merged::with_clocks(readers, self.clocks.get().unwrap_or(&Clocks::default()))?)
    }

    /// Returns the events, or the selected ones, from the beginning.
    pub fn events(&self, filter: Option<Arc<Filter>>) -> io::Result<Events<'static>> {
        let events = self.read().map_err(io::Error::other)?;
        Ok(match filter {
            None => Box::new(events),
            Some(filter) => Box::new(events.filter_map(move |event| filter.apply(event))),
        })
    }

    /// Returns what a reader says about the file it has read, with the file's name if there are several.
    pub fn about(&self, index: usize, text: &dyn std::fmt::Display) -> String {
        match (&self.files[..], self.files.get(index)) {
            ([_, _, ..], Some((path, _))) => format!("{}: {text}", path.display()),
            _ => text.to_string(),
        }
    }
}

/// Returns a file that can be read more than once: what comes through a pipe is kept in a temporary file without a name.
fn rewindable(mut file: File) -> anyhow::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        bail!("it is a directory");
    }
    if file.is_terminal() {
        bail!("it is a terminal: give a recording, or its contents through a pipe");
    }
    if kind.is_fifo() || kind.is_socket() {
        let mut kept = tempfile::tempfile().context("cannot create a temporary file")?;
        io::copy(&mut file, &mut kept)?;
        return Ok(kept);
    }
    Ok(file)
}

/// Returns a recording: a trace's lines of JSON become one in a temporary file without a name.
fn recorded(mut file: File) -> anyhow::Result<File> {
    let mut first = [0];
    if file.read_at(&mut first, 0)? == 0 || first != *b"{" {
        return Ok(file);
    }
    file.rewind()?;
    let kept = tempfile::tempfile().context("cannot create a temporary file")?;
    let mut writer = Writer::new(&kept)?;
    export::read_back(BufReader::with_capacity(1 << 20, file), &mut |event| {
        writer.push(event).map_err(io::Error::other)
    })?;
    writer.flush()?;
    drop(writer);
    Ok(kept)
}

fn is_same(one: &File, other: &File) -> bool {
    let (Ok(one), Ok(other)) = (fstat(one), fstat(other)) else { return false };
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
