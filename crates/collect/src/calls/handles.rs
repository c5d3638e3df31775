//! Reads the kernel handles that running processes keep, on a separate thread: large libraries take a second.

use std::{
    collections::HashSet,
    fs::File,
    io,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use elf::Budget;
use model::event::{ProcessId, Symbol};
use symbols::Kept;

use crate::{command::priority, process::procfs};

/// The most files of one process that are held open.
const MOST_FILES: usize = 256;
/// The most processes that wait to be read.
const ROOM: usize = 256;
/// How long the end of a trace waits for names.
const LAST: Duration = Duration::from_secs(10);

/// Returns the names of the kernel handles that a process keeps; none if it has ended, or may not be read.
pub fn read(pid: u32, image: ProcessId, budget: &Budget) -> Vec<Symbol> {
    let Ok(memory) = File::open(format!("/proc/{}/mem", procfs::in_proc(pid))) else { return Vec::new() };
    let mut kept = Kept::new(MOST_FILES);
    let mappings = procfs::mappings(pid, image);
    for mapping in &mappings {
        kept.mapped(mapping, pid);
    }
    symbols::kept_handles(&mappings, &kept.files, &memory, budget)
}

/// The processes whose handles were read, each once.
#[derive(Debug)]
pub struct Handles {
    requested: HashSet<ProcessId>,
    pending: usize,
    jobs: mpsc::SyncSender<(u32, ProcessId)>,
    done: mpsc::Receiver<Vec<Symbol>>,
}

impl Handles {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let (jobs, todo) = mpsc::sync_channel(ROOM);
        let (finished, done) = mpsc::channel();
        thread::Builder::new().name("handles".into()).spawn(move || {
            priority::lower();
            for (pid, image) in todo {
                if finished.send(read(pid, image, &Budget::RECORDING)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requested: HashSet::new(), pending: 0, jobs, done })
    }

    /// Requests the handles of a process, unless they were requested before.
    pub fn request(&mut self, pid: u32, image: ProcessId) {
        if !self.requested.contains(&image) && self.jobs.try_send((pid, image)).is_ok() {
            self.requested.insert(image);
            self.pending += 1;
        }
    }

    /// Returns the names that were found since the last call.
    pub fn take(&mut self) -> Vec<Symbol> {
        let found: Vec<_> = self.done.try_iter().collect();
        self.pending -= found.len();
        found.into_iter().flatten().collect()
    }

    /// Waits for everything that was requested, and returns the names.
    pub fn finish(&mut self) -> Vec<Symbol> {
        let deadline = Instant::now() + LAST;
        let mut found = self.take();
        while self.pending > 0
            && let Ok(names) = self.done.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.pending -= 1;
            found.extend(names);
        }
        found
    }
}
