//! The recordings that a command reads, as one stream of events.

use std::{
    fs::File,
    io::{self, BufReader, Seek},
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context, bail};
use export::Events;
use model::{merge::Merged, recording::Reader};
use rustix::fs::fstat;

use crate::filter::Filter;

/// The events of all recordings.
pub type Read = Merged<Reader<BufReader<File>>>;

/// Open recordings.
#[derive(Debug)]
pub struct Source {
    files: Vec<(PathBuf, File)>,
}

impl Source {
    /// Opens recordings.
    pub fn open(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut files: Vec<(PathBuf, File)> = Vec::new();
        for path in paths {
            let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            if file.metadata().is_ok_and(|info| info.is_dir()) {
                bail!("cannot read {}: it is a directory", path.display());
            }
            if let Some((other, _)) = files.iter().find(|(_, other)| is_same(other, &file)) {
                bail!("{} and {} are the same file", other.display(), path.display());
            }
            files.push((path.clone(), file));
        }
        Ok(Self { files })
    }

    /// The recording that is being written.
    pub fn of(path: PathBuf, file: File) -> Self {
        Self { files: vec![(path, file)] }
    }

    /// Returns the files.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().map(|(_, file)| file)
    }

    /// Reads all recordings from their beginning.
    pub fn read(&self) -> anyhow::Result<Read> {
        let open = |(path, file): &(PathBuf, File)| {
            let mut file = file.try_clone()?;
            file.rewind()?;
            Reader::new(BufReader::with_capacity(1 << 20, file)).with_context(|| path.display().to_string())
        };
        let readers = self.files.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Merged::new(readers)?)
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

fn is_same(one: &File, other: &File) -> bool {
    let (Ok(one), Ok(other)) = (fstat(one), fstat(other)) else { return false };
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
