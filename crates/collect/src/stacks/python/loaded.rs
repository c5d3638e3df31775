//! Interpreters of processes that are followed from their first call on.

use std::{collections::HashMap, os::unix::fs::MetadataExt, sync::Arc, time::Instant};

use bpf::{Mapped, PythonMaps};
use model::event::ProcessId;
use symbols::python::{Interpreter, Unsupported};

use super::layout::layout;
use crate::{
    calls::{
        effort::Effort,
        file::{Identity, Stamp, known_by},
    },
    process::procfs,
};

/// The most files whose interpreters are kept.
const MOST: usize = 256;

/// Interpreters by their file, and the time spent on the files of each user.
pub(super) struct Loaded {
    known: HashMap<(Identity, Stamp), Option<Arc<Interpreter>>>,
    effort: Effort,
}

impl Default for Loaded {
    fn default() -> Self {
        Self { known: HashMap::new(), effort: Effort::new(Instant::now()) }
    }
}

impl Loaded {
    /// Declares the interpreter that a process has mapped, if the file has one.
    pub(super) fn declare_mapped(&mut self, mapped: &Mapped, maps: &PythonMaps) {
        let Mapped { pid, start, length, offset, path, .. } = mapped;
        self.declare_at(*pid, (*start, start.saturating_add(*length), *offset), path, maps);
    }

    /// Declares the interpreter of a process.
    pub(super) fn declare(&mut self, pid: u32, maps: &PythonMaps) {
        for mapping in procfs::mappings(pid, ProcessId(0)) {
            self.declare_at(pid, (mapping.start, mapping.end, mapping.offset), &mapping.path, maps);
        }
    }

    fn declare_at(&mut self, pid: u32, (start, end, offset): (u64, u64, u64), path: &str, maps: &PythonMaps) {
        if !Interpreter::may_be_in(path) {
            return;
        }
        let found = self.find(pid, start, end, path);
        let Some(bias) = found.as_ref().and_then(|found| found.segments.bias(start, offset)) else { return };
        let Some(found) = found else { return };
        // If the map is full, its first stacks show the interpreter's own frames instead.
        let _ = maps.declare_loaded(pid, &layout(&found, bias));
        // Its end may have been before the declaration, which would then stay for the next process with this pid.
        if procfs::is_exiting(pid) {
            maps.forget_loaded(pid);
        }
    }

    /// Returns the interpreter in a mapped file; `None` if there is none, or no time for new files of its owner.
    fn find(&mut self, pid: u32, start: u64, end: u64, path: &str) -> Option<Arc<Interpreter>> {
        let file = elf::open(procfs::mapped_file(pid, start, end)).ok()?;
        let info = file.metadata().ok()?;
        if let Some(known) = self.known.get(&known_by(&info)) {
            return known.clone();
        }
        let begun = Instant::now();
        if !self.effort.allows(info.uid(), begun) {
            return None;
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let found = Interpreter::find(&file, path);
        self.effort.spend(info.uid(), begun.elapsed(), Instant::now());
        // The process that reads files had no time, for example. The next mapping is another chance.
        if let Some(Err(Unsupported::Unread(_))) = found {
            return None;
        }
        let found = found.and_then(Result::ok).map(Arc::new);
        self.known.insert(known_by(&info), found.clone());
        found
    }
}
