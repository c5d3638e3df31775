//! Processes that generate code at run time, and the location of that code's names: `perf-PID.map` in their `/tmp`.
//!
//! The names are read at the end of a recording. By then the process has exited, so its `/tmp` is no longer reachable
//! and its pid in its own namespace is unknown. Both are therefore saved when its first such code is mapped, and the
//! file is opened when the process ends.
//!
//! Later another program with the same pid may overwrite it: a file that was modified after it was opened is not used.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use elf::Bytes as _;
use model::event::ProcessId;
use rustix::fs::{Mode, OFlags, openat};
use sandbox::{Failed, Limits};

use crate::{perf_map, roots};

/// The maximum number of processes.
const MOST: usize = 1024;
/// The maximum size of a file.
const LARGEST: u64 = 64 << 20;
/// Limits on reading one.
const LIMITS: Limits = Limits { time: Duration::from_secs(30), answer: 64 << 20 };

/// All processes that generate code.
#[derive(Clone, Debug, Default)]
pub struct Jits {
    images: HashMap<ProcessId, Jit>,
    /// Directories for temporary files, each opened once.
    directories: HashMap<(u64, u64), Arc<File>>,
    too_large: BTreeSet<String>,
    refused: BTreeSet<ProcessId>,
}

#[derive(Clone, Debug)]
struct Jit {
    directory: Arc<File>,
    pid: u32,
    /// The pid in its own namespace, used in its file's name.
    own_pid: u32,
    uid: u32,
    /// Its file, once it has ended.
    ended: Option<Option<Written>>,
}

/// A file at the time its process ended.
#[derive(Clone, Debug)]
struct Written {
    file: Arc<File>,
    modified: (i64, i64),
}

impl Jits {
    /// Registers a process with code that is not in a file.
    pub fn saw(&mut self, image: ProcessId, pid: u32) {
        if self.images.contains_key(&image) {
            return;
        }
        if self.images.len() >= MOST {
            self.refused.insert(image);
            return;
        }
        if let Some(jit) = self.find(pid) {
            self.images.insert(image, jit);
        }
    }

    /// Registers a forked process: it has its parent's code, and may generate its own.
    pub fn forked(&mut self, image: ProcessId, pid: u32, parent: ProcessId) {
        if self.images.contains_key(&parent) {
            self.saw(image, pid);
        }
    }

    /// Handles the end of a process or an exec.
    pub fn died(&mut self, image: ProcessId) {
        if let Some(jit) = self.images.get_mut(&image)
            && jit.ended.is_none()
        {
            jit.ended = Some(jit.open(&mut self.too_large));
        }
    }

    /// Forgets these images.
    pub fn forget(&mut self, ended: &dyn Fn(ProcessId) -> bool) {
        self.images.retain(|image, _| !ended(*image));
        self.refused.retain(|image| !ended(*image));
        self.directories.retain(|_, directory| Arc::strong_count(directory) > 1);
    }

    fn find(&mut self, pid: u32) -> Option<Jit> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let numbers = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::split_whitespace);
        let own_pid = numbers("NSpid:").and_then(Iterator::last).map_or(Some(pid), |word| word.parse().ok())?;
        let uid = numbers("Uid:")?.nth(1)?.parse().ok()?;
        let directory = roots::directory(&format!("/proc/{pid}/root/tmp"))?;
        let info = directory.metadata().ok()?;
        let directory = self.directories.entry((info.dev(), info.ino())).or_insert_with(|| Arc::new(directory)).clone();
        Some(Jit { directory, pid, own_pid, uid, ended: None })
    }

    /// Returns the names that an image's own file gives to addresses.
    pub(crate) fn names(
        &mut self,
        image: ProcessId,
        addresses: &BTreeSet<u64>,
    ) -> Result<HashMap<u64, String>, Failed> {
        self.died(image);
        let written = self.images.get(&image).and_then(|jit| jit.ended.as_ref()?.as_ref());
        let Some(file) = written.and_then(Written::unchanged) else { return Ok(HashMap::new()) };
        let wanted: Vec<u64> = addresses.iter().copied().collect();
        let names = sandbox::parse(read, &wanted, &[file], &LIMITS)?;
        Ok(names.into_iter().filter(|(address, _)| addresses.contains(address)).collect())
    }

    /// Returns how many processes exceeded the limit.
    pub(crate) fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Returns the files that were too large.
    pub(crate) fn too_large(&self) -> impl Iterator<Item = &str> {
        self.too_large.iter().map(String::as_str)
    }
}

impl Jit {
    /// Returns the file that it may have written: in its own directory, otherwise under its pid in ours.
    fn open(&self, too_large: &mut BTreeSet<String>) -> Option<Written> {
        let name = format!("perf-{}.map", self.own_pid);
        let ours = || roots::directory("/tmp").and_then(|ours| open(&ours, &format!("perf-{}.map", self.pid)));
        let file = open(&self.directory, &name).or_else(ours)?;
        let info = file.metadata().ok()?;
        if !info.is_file() || (info.uid() != self.uid && info.uid() != 0) {
            return None;
        }
        if info.len() > LARGEST {
            too_large.insert(Path::new("/tmp").join(name).display().to_string());
            return None;
        }
        Some(Written { file: Arc::new(file), modified: (info.mtime(), info.mtime_nsec()) })
    }
}

impl Written {
    /// Returns the file; `None` if another process, with the same pid, has written to it since.
    fn unchanged(&self) -> Option<&File> {
        let info = self.file.metadata().ok()?;
        ((info.mtime(), info.mtime_nsec()) == self.modified).then_some(&*self.file)
    }
}

/// Reads the names of addresses from a file. Runs without rights.
#[allow(clippy::ptr_arg, reason = "requests are owned values")]
fn read(addresses: &Vec<u64>, files: &[&File]) -> Vec<(u64, String)> {
    let text = files.first().and_then(|file| elf::read(*file, 0, file.length().min(LARGEST), "names").ok());
    perf_map::names(&text.unwrap_or_default(), addresses.iter().copied().collect()).into_iter().collect()
}

/// Opens a file of a directory, without following a link and without blocking.
fn open(directory: &File, name: &str) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty()).ok().map(File::from)
}
