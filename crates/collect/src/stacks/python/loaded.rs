//! Interpreters of processes that have loaded CUDA, and that are followed from their first call on.

use std::{collections::HashMap, sync::Arc};

use bpf::PythonMaps;
use model::event::ProcessId;
use symbols::python::Interpreter;

use super::layout::layout;
use crate::{
    calls::file::{Identity, Stamp, known_by},
    process::procfs,
};

/// The most files whose interpreters are kept.
const MOST: usize = 256;

/// Interpreters by their file.
#[derive(Default)]
pub(super) struct Loaded(HashMap<(Identity, Stamp), Option<Arc<Interpreter>>>);

impl Loaded {
    /// Declares the interpreter of a process.
    pub(super) fn declare(&mut self, pid: u32, maps: &PythonMaps) {
        for mapping in procfs::mappings(pid, ProcessId(0)).iter().filter(|m| Interpreter::may_be_in(&m.path)) {
            let Ok(file) = elf::open(procfs::mapped_file(pid, mapping.start, mapping.end)) else { continue };
            let Ok(info) = file.metadata() else { continue };
            if self.0.len() >= MOST {
                self.0.clear();
            }
            let find = || Interpreter::find(&file, &mapping.path)?.ok().map(Arc::new);
            let Some(found) = self.0.entry(known_by(&info)).or_insert_with(find) else { continue };
            let Some(bias) = found.segments.bias(mapping.start, mapping.offset) else { continue };
            // If the map is full, its first stacks show the interpreter's own frames instead.
            let _ = maps.declare_loaded(pid, &layout(found, bias));
            // Its end may have been before the declaration, which would then stay for the next process with this pid.
            if procfs::is_exiting(pid) {
                maps.forget_loaded(pid);
            }
        }
    }
}
