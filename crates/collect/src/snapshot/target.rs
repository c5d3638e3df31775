//! A process whose threads are looked at.

use std::{collections::HashMap, fs};

use model::{
    event::{Mapping, ProcessId},
    hang::RankPlace,
};
use symbols::{Kept, python::Interpreter};

use super::{identity, memory::Memory, python::Python};
use crate::{
    process::procfs,
    stacks::{python::Code, unwinding::image::Module},
};

pub(super) struct Target {
    pub pid: u32,
    pub id: ProcessId,
    pub name: String,
    pub program: String,
    pub place: RankPlace,
    pub memory: Memory,
    pub mappings: Vec<Mapping>,
    /// Sorted.
    pub modules: Vec<Module>,
    pub code: Code,
    pub python: Option<Python>,
    /// Why its Python frames cannot be read.
    pub unsupported: Option<String>,
}

impl Target {
    /// Reads what a process has mapped. `None` if it has ended, or cannot be read.
    pub fn of(pid: u32, id: ProcessId, host: &str, kept: &mut Kept) -> Option<Self> {
        let memory = Memory::of(pid).ok()?;
        let mappings = procfs::mappings(pid, id);
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
        let program = program.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let mut target = Self {
            pid,
            id,
            name: procfs::comm(pid)?,
            program: program.unwrap_or_default().trim_end_matches(" (deleted)").to_owned(),
            place: identity::of(pid, host),
            memory,
            mappings,
            modules: Vec::new(),
            code: Code::default(),
            python: None,
            unsupported: None,
        };
        for mapping in &target.mappings {
            let file = kept.mapped(mapping, pid);
            let Mapping { start, end, offset, .. } = *mapping;
            target.modules.push(Module { start, end, offset, file });
            if target.code.add(mapping) || !Interpreter::may_be_in(&mapping.path) {
                continue;
            }
            match file.and_then(|id| Interpreter::find(&kept.files.open(id)?, &mapping.path)) {
                Some(Ok(interpreter)) => {
                    let bias = target.code.add_interpreter(mapping, &interpreter);
                    target.python = bias.map(|bias| Python { interpreter, bias });
                }
                Some(Err(why)) => target.unsupported = Some(format!("process {pid}: {why}")),
                None => {}
            }
        }
        target.modules.sort_by_key(|module| module.start);
        Some(target)
    }

    /// Returns the innermost Python frame of every thread, by the address that identifies the thread.
    pub fn python_threads(&self) -> HashMap<u64, u64> {
        self.python.as_ref().map(|python| python.threads(&self.memory)).unwrap_or_default()
    }

    /// Returns the name of a thread.
    pub fn thread_name(&self, tid: u32) -> String {
        let name = fs::read_to_string(format!("/proc/{}/task/{tid}/comm", self.pid)).unwrap_or_default();
        name.trim_end().to_owned()
    }
}
