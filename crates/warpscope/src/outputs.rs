//! The files a command writes: checked before the run, written after it, owned by whoever asked.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Seek, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use export::{Events, Format, View};
use model::{profile::Profile, recording::Reader};

use crate::record::user::{User, give};

/// Files to write.
#[derive(Debug)]
pub struct Outputs {
    files: Vec<(Format, PathBuf)>,
    owner: Option<User>,
    recording: Option<File>,
}

impl Outputs {
    /// Checks the wishes, or takes the defaults: known formats, directories that exist and can be written to.
    pub fn check(wishes: &[PathBuf], defaults: &[&str], owner: Option<User>) -> anyhow::Result<Self> {
        let wishes: Vec<PathBuf> =
            if wishes.is_empty() { defaults.iter().map(PathBuf::from).collect() } else { wishes.to_vec() };
        let mut files = Vec::new();
        let mut seen = BTreeSet::new();
        for path in wishes {
            let format = Format::from_path(&path)?;
            check_directory(&path)?;
            if !seen.insert(path.clone()) {
                bail!("{} is named twice", path.display());
            }
            if format == Format::Recording && files.iter().any(|(f, _)| *f == Format::Recording) {
                bail!("one recording is enough: name one .wscope file");
            }
            files.push((format, path));
        }
        Ok(Self { files, owner, recording: None })
    }

    /// Opens the file that events are recorded to: the `.wscope` file if one was asked for, else one without a name.
    pub fn recording(&mut self) -> anyhow::Result<(File, PathBuf)> {
        let (file, path) = match self.recording_path() {
            Some(path) => (create(path, self.owner.as_ref())?, path.to_owned()),
            None => {
                let directory = directory(&self.files[0].1);
                let file = tempfile::tempfile_in(directory).or_else(|_| tempfile::tempfile());
                (file.context("cannot create a temporary file for the recording")?, "(temporary)".into())
            }
        };
        self.recording = Some(file.try_clone()?);
        Ok((file, path))
    }

    /// Takes an existing recording as the source of events.
    pub fn read_from(&mut self, recording: File) {
        self.recording = Some(recording);
    }

    fn recording_path(&self) -> Option<&Path> {
        self.files.iter().find(|(format, _)| *format == Format::Recording).map(|(_, path)| path.as_path())
    }

    /// Removes the recording that was begun: the command never ran.
    pub fn remove_recording(&self) {
        if let Some(path) = self.recording_path() {
            let _ = fs::remove_file(path);
        }
    }

    /// Writes every file but the recording. What fails is told and the rest still written; `true` if all went well.
    /// Formats that are made of events are as whole as the recording, which is told where it is not.
    pub fn write(&self, profile: &Profile, view: View, recording_is_whole: bool) -> bool {
        let mut whole = true;
        for (format, path) in self.files.iter().filter(|(format, _)| *format != Format::Recording) {
            if !recording_is_whole && format.needs_events() {
                eprintln!("warpscope: {} ends where the recording does", path.display());
            }
            if let Err(error) = self.write_one(*format, path, profile, view) {
                eprintln!("warpscope: {error:#}");
                whole = false;
            }
        }
        whole
    }

    fn write_one(&self, format: Format, path: &Path, profile: &Profile, view: View) -> anyhow::Result<()> {
        let file = create(path, self.owner.as_ref())?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let written = export::write(format, profile, view, &mut || self.events(), &mut out).and_then(|()| out.flush());
        written.with_context(|| format!("cannot write {}", path.display())).inspect_err(|_| {
            // Half a file is worse than none; a device such as /dev/full stays.
            if path.is_file() {
                let _ = fs::remove_file(path);
            }
        })
    }

    /// The events of the recording, from its beginning.
    pub fn events(&self) -> io::Result<Events<'static>> {
        events(self.recording.as_ref().ok_or(io::ErrorKind::NotFound)?)
    }

    /// Says what was written where.
    pub fn announce(&self, out: &mut dyn Write) -> io::Result<()> {
        for (_, path) in &self.files {
            if let Ok(info) = fs::metadata(path) {
                writeln!(out, "wrote {}  ({})", path.display(), export::units::bytes(info.len()))?;
            }
        }
        Ok(())
    }
}

/// The events of a recording, from its beginning.
pub fn events(recording: &File) -> io::Result<Events<'static>> {
    let mut file = recording.try_clone()?;
    file.rewind()?;
    let reader = Reader::new(BufReader::with_capacity(1 << 20, file)).map_err(io::Error::other)?;
    Ok(Box::new(reader))
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn check_directory(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let directory = directory(path);
    match fs::metadata(directory) {
        Ok(info) if info.is_dir() => {}
        Ok(_) => bail!("cannot write {}: {} is not a directory", path.display(), directory.display()),
        Err(error) => bail!("cannot write {}: the directory {}: {error}", path.display(), directory.display()),
    }
    if path.is_dir() {
        bail!("cannot write {}: it is a directory", path.display());
    }
    let place = if path.exists() { path } else { directory };
    let name = std::ffi::CString::new(place.as_os_str().as_bytes())?;
    // SAFETY: a valid C string.
    if unsafe { libc::access(name.as_ptr(), libc::W_OK) } != 0 {
        bail!("cannot write {}: {}", path.display(), io::Error::last_os_error());
    }
    Ok(())
}

fn create(path: &Path, owner: Option<&User>) -> anyhow::Result<File> {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    give(&file, owner);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(wishes: &[&str]) -> String {
        let wishes: Vec<PathBuf> = wishes.iter().map(PathBuf::from).collect();
        format!("{:#}", Outputs::check(&wishes, &[], None).expect_err("refused"))
    }

    /// What cannot be written is refused before anything runs, in a sentence.
    #[test]
    fn refusals() {
        assert!(refusal(&["x.pdf"]).contains(".wscope .folded .svg .json .cpu.txt .jsonl"));
        assert!(refusal(&["/nowhere/at/all/x.svg"]).contains("the directory /nowhere/at/all: No such file"));
        assert!(refusal(&["x.svg", "x.svg"]).contains("named twice"));
        assert!(refusal(&["a.wscope", "b.wscope"]).contains("one recording"));
    }
}
