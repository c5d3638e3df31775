//! Tables that are compiled before the walker is there. The kernel takes some tenths of a second to verify the programs, and a recording
//! begins when the tables of its process or command are ready: both happen at the same time.

use std::{collections::HashSet, fs, io, path::PathBuf};

use elf::Budget;
use model::event::ProcessId;
use symbols::{FileId, Files};

use super::tables::{Compiler, Job, What};
use crate::process::procfs;

/// The threads that compile tables, and the files that they have to compile.
pub struct Early {
    pub(super) compiler: Compiler,
    pub(super) queued: HashSet<FileId>,
    pub(super) on_demand: bool,
}

impl Early {
    /// Starts the threads, which may use as much memory as `budget` allows. They compile whole files or, `on_demand`, only the
    /// functions on stacks.
    pub fn start(budget: &Budget, on_demand: bool) -> io::Result<Self> {
        let compiler = Compiler::start(budget.tables, if on_demand { 1 } else { threads() })?;
        Ok(Self { compiler, queued: HashSet::new(), on_demand })
    }

    /// Begins with the tables of the files that a running process has mapped as code.
    pub fn queue(&mut self, pid: u32, files: &mut Files) {
        if self.on_demand {
            return;
        }
        // The image's number does not matter: the same files are registered again when the process is followed.
        for mapping in procfs::mappings(pid, ProcessId(0)) {
            if let Some(id) = files.mapped(&mapping, procfs::in_proc(pid)) {
                self.add(id, mapping.path, files);
            }
        }
    }

    /// Begins with the tables of files that the command will certainly map: the common ones, and those in `sure`. Returns the
    /// files.
    pub fn expect(&mut self, files: &mut Files, sure: &[PathBuf]) -> Vec<FileId> {
        let mut paths = canonical(sure);
        paths.extend(common_files());
        let mut expected = Vec::new();
        for path in paths {
            if let Some(id) = files.expected(&path) {
                self.add(id, path, files);
                expected.push(id);
            }
        }
        expected
    }

    fn add(&mut self, id: FileId, path: String, files: &Files) {
        if !self.queued.contains(&id)
            && let Some(file) = files.open(id)
        {
            self.compiler.queue(ProcessId(0), Job { id, path, file, what: What::Whole });
            self.queued.insert(id);
        }
    }
}

/// Returns the paths of files without links, each once.
pub(super) fn canonical(files: &[PathBuf]) -> HashSet<String> {
    let paths = files.iter().filter_map(|path| path.canonicalize().ok());
    paths.map(|path| path.to_string_lossy().into_owned()).filter(|path| Files::is_file(path)).collect()
}

/// Returns the files that every command maps as code, as far as we have mapped them ourselves, such as the C library.
fn common_files() -> Vec<String> {
    // Our own program is the largest of them, and no other command maps it.
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = own.lines().filter(|l| l.contains(" r-xp ")).filter_map(|l| Some(&l[l.find(['/', '['])?..]));
    mapped.filter(|path| Files::is_file(path) && program != PathBuf::from(path)).map(str::to_owned).collect()
}

/// Returns how many threads compile tables: a quarter of the CPUs, because the measured threads need them too.
fn threads() -> u64 {
    const MOST: u64 = 8;
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    (cpus / 4).clamp(1, MOST)
}
