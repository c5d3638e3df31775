//! Tables that are compiled before the walker is there. The kernel takes some tenths of a second to verify the programs, and a recording
//! of a running process begins when its tables are ready: both happen at the same time.

use std::{collections::HashSet, io};

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
            if let Some(id) = files.mapped(&mapping, procfs::in_proc(pid))
                && !self.queued.contains(&id)
                && let Some(file) = files.open(id)
            {
                self.compiler.queue(mapping.process, Job { id, path: mapping.path, file, what: What::Whole });
                self.queued.insert(id);
            }
        }
    }
}

/// Returns how many threads compile tables: a quarter of the CPUs, because the measured threads need them too.
fn threads() -> u64 {
    const MOST: u64 = 8;
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    (cpus / 4).clamp(1, MOST)
}
