//! The state of the watched processes, from the collector's events: what the next snapshots need, removed when a
//! process has ended.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use collect::sink::Sink;
use cuda::calls::{Call as Known, KernelRef};
use model::{
    calls::KernelNames,
    event::{Event, Frame, Mapping, NamedFrame, Origin, ProcessId, Stack, StackId},
};

use super::{labels, notes::Notes};

/// The maximum number of executable mappings kept of one process.
const MAX_MAPPINGS: usize = 8192;
/// The maximum number of kernels whose names are kept.
const MAX_NAMES: usize = 1 << 18;
/// The maximum number of demangled names kept.
const MAX_READABLE: usize = 4096;
/// How long an ended process is kept for the names of its kernels.
const TO_NAME_NS: u64 = 2_000_000_000;

/// The state of all watched processes.
#[derive(Default)]
pub struct State {
    pub processes: HashMap<ProcessId, Process>,
    /// Watched functions, by number.
    pub functions: HashMap<u32, Function>,
    pub names: KernelNames,
    /// Kernels whose names did not fit.
    pub names_refused: u64,
    pub notes: Notes,
    stacks: HashMap<StackId, Kept>,
    python: HashMap<Frame, Vec<NamedFrame>>,
    readable: HashMap<Arc<str>, Arc<str>>,
}

/// A process image that calls CUDA.
#[derive(Default)]
pub struct Process {
    pub pid: u32,
    pub comm: String,
    pub user: String,
    pub container: String,
    pub command: String,
    /// PyTorch's caching allocator is disabled.
    pub uncached: bool,
    /// When watching began.
    pub since: u64,
    /// Whether it has ended.
    pub ended: bool,
    /// Whether a snapshot has reported its end.
    pub reported: bool,
    /// Whether its live allocations were removed from the kernel's map.
    pub memory_forgotten: bool,
    pub mappings: Vec<Mapping>,
    /// Resolved stacks.
    pub stack_names: HashMap<StackId, Arc<[crate::snapshot::Frame]>>,
    /// Stacks requested from the namer.
    pub requested_stacks: HashSet<StackId>,
    pub requested_stubs: HashSet<u64>,
    /// Host functions that the namer has not resolved yet.
    pub awaited_stubs: HashSet<u64>,
    /// Handles whose kernels were requested, each once, and those of them that the namer has not answered yet.
    pub requested_handles: HashSet<u64>,
    pub awaited_handles: HashSet<u64>,
    /// When it ended.
    ended_at: u64,
    /// Launches of kernels evicted from the kernel's map.
    pub evicted_launches: u64,
    /// The first stack with the same frames: stacks copied as raw memory have unique ids.
    same_frames: HashMap<u64, StackId>,
}

/// A function that is watched.
pub struct Function {
    pub name: Arc<str>,
    pub known: Option<&'static Known>,
    pub shown: bool,
}

struct Kept {
    stack: Stack,
    same_as: StackId,
}

impl Process {
    /// Marks the process as ended at this time.
    pub fn end(&mut self, time: u64) {
        if !self.ended {
            (self.ended, self.ended_at) = (true, time);
        }
    }

    /// Returns when it ended, or `now` if it has not.
    pub fn until(&self, now: u64) -> u64 {
        if self.ended { self.ended_at } else { now }
    }

    /// Whether nothing about it can change after a snapshot whose sums were read from the time `read` on: it had ended by
    /// then, and its kernels are `named`, or would be by now.
    pub fn is_final(&self, read: u64, now: u64, named: bool) -> bool {
        let had_time = now.saturating_sub(self.ended_at) >= TO_NAME_NS;
        self.ended && self.ended_at <= read && (named || had_time)
    }
}

impl State {
    /// Returns the first stack with the same frames as this one.
    pub fn canonical(&self, id: StackId) -> StackId {
        self.stacks.get(&id).map_or(id, |kept| kept.same_as)
    }

    /// Returns the number of stacks kept.
    pub fn stacks(&self) -> usize {
        self.stacks.len()
    }

    /// Returns the names of a Python frame.
    pub fn python_names(&self, frame: Frame) -> Option<&[NamedFrame]> {
        self.python.get(&frame).map(Vec::as_slice)
    }

    /// Whether the name of a host function has not been requested yet.
    pub fn is_unrequested(&self, process: ProcessId, stub: u64) -> bool {
        self.processes.get(&process).is_some_and(|known| !known.requested_stubs.contains(&stub))
    }

    /// Returns the mapped code of a process that contains an address.
    pub fn code_at(&self, process: ProcessId, address: u64) -> Option<&Mapping> {
        let holds = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        self.processes.get(&process)?.mappings.iter().find(holds)
    }

    /// Whether the name of a host function or of a handle is being resolved.
    pub fn is_awaited(&self, process: ProcessId, kernel: u64) -> bool {
        let awaited =
            |known: &Process| known.awaited_stubs.contains(&kernel) || known.awaited_handles.contains(&kernel);
        self.processes.get(&process).is_some_and(awaited)
    }

    /// Returns the demangled name of a kernel, if known.
    pub fn kernel_name(&mut self, process: ProcessId, kernel: KernelRef) -> Option<Arc<str>> {
        let name = self.names.get(process, kernel)?;
        if let Some(text) = self.readable.get(name) {
            return Some(text.clone());
        }
        if self.readable.len() >= MAX_READABLE {
            self.readable.clear();
        }
        let text: Arc<str> = symbols::demangle(name).into();
        self.readable.insert(name.clone(), text.clone());
        Some(text)
    }

    /// Removes processes.
    pub fn forget(&mut self, gone: &dyn Fn(ProcessId) -> bool) {
        self.processes.retain(|id, _| !gone(*id));
        self.stacks.retain(|_, kept| !gone(kept.stack.process));
        self.readable.clear();
        self.names.forget(gone);
        self.forget_python();
    }

    /// Removes the stacks of live processes except those in `keep`; returns the removed stacks and their processes.
    pub fn forget_stacks(&mut self, keep: &HashSet<StackId>) -> Vec<(ProcessId, StackId)> {
        let same: HashSet<StackId> = keep.iter().map(|id| self.canonical(*id)).collect();
        let stays = |id: &StackId| keep.contains(id) || same.contains(id);
        let gone: Vec<_> =
            self.stacks.extract_if(|id, _| !stays(id)).map(|(id, kept)| (kept.stack.process, id)).collect();
        for process in self.processes.values_mut() {
            process.same_frames.retain(|_, id| stays(id));
            process.stack_names.retain(|id, _| stays(id));
            process.requested_stacks.retain(stays);
        }
        self.forget_python();
        gone
    }

    fn forget_python(&mut self) {
        let used: HashSet<Frame> = self.stacks.values().flat_map(|kept| kept.stack.frames.iter().copied()).collect();
        self.python.retain(|frame, _| used.contains(frame));
    }

    fn take_stack(&mut self, stack: &Stack) {
        let Some(process) = self.processes.get_mut(&stack.process) else { return };
        let mut hasher = DefaultHasher::new();
        stack.frames.hash(&mut hasher);
        let same_as = *process.same_frames.entry(hasher.finish()).or_insert(stack.id);
        self.stacks.insert(stack.id, Kept { stack: stack.clone(), same_as });
    }

    fn take_process(&mut self, process: &model::event::Process) {
        let labels = labels::read(process.pid);
        let parent = (process.origin == Origin::Fork).then_some(process.parent);
        let mappings = parent.and_then(|parent| self.processes.get(&parent)).map(|parent| {
            parent.mappings.iter().map(|mapping| Mapping { process: process.id, ..mapping.clone() }).collect()
        });
        let new = Process {
            pid: process.pid,
            comm: process.comm.clone(),
            user: labels.user,
            container: labels.container,
            command: labels.command,
            uncached: labels.uncached,
            since: process.time,
            mappings: mappings.unwrap_or_default(),
            ..Process::default()
        };
        // The previous process with this pid has ended, even if its exit was not reported.
        for other in self.processes.values_mut().filter(|other| other.pid == process.pid) {
            other.end(process.time);
        }
        self.processes.insert(process.id, new);
    }

    fn take_mapping(&mut self, mapping: &Mapping) {
        let Some(process) = self.processes.get_mut(&mapping.process) else { return };
        // The new mapping replaces those it overlaps.
        process.mappings.retain(|old| old.end <= mapping.start || old.start >= mapping.end);
        if process.mappings.len() < MAX_MAPPINGS {
            process.mappings.push(mapping.clone());
        }
    }

    /// Learns the kernels of handles, after those in `requested` were.
    pub fn learn_handles(&mut self, process: ProcessId, requested: &[u64], kernels: Vec<(u64, String)>) {
        let Some(known) = self.processes.get_mut(&process) else { return };
        known.awaited_handles.retain(|handle| !requested.contains(handle));
        for (handle, name) in kernels {
            if self.names.count() < MAX_NAMES {
                self.names.name_stub(process, handle, &name);
            } else {
                self.names_refused += 1;
            }
        }
    }

    fn learn(&mut self, call: &model::event::Call) {
        let Some(function) = self.functions.get(&call.function.0) else { return };
        let Some(known) = function.known.filter(|_| self.processes.contains_key(&call.process)) else { return };
        if self.names.count() < MAX_NAMES {
            self.names.learn_from(known, call);
            self.names.learn_objects(known, call);
        } else {
            self.names_refused += 1;
        }
    }
}

impl Sink for State {
    fn push(&mut self, event: &Event) {
        match event {
            Event::Process(process) => self.take_process(process),
            Event::Exit(exit) => {
                if let Some(process) = self.processes.get_mut(&exit.process) {
                    process.end(exit.time);
                }
            }
            Event::Mapping(mapping) => self.take_mapping(mapping),
            Event::Stack(stack) => self.take_stack(stack),
            Event::Symbol(symbol) => {
                self.python.insert(symbol.frame, symbol.names.clone());
            }
            Event::Function(function) => {
                let (name, known) = (function.name.as_str().into(), cuda::call(&function.name));
                self.functions.insert(function.id.0, Function { name, known, shown: function.shown });
            }
            Event::Call(call) => self.learn(call),
            Event::Note(note) => self.notes.add(note.text.clone()),
            _ => {}
        }
    }

    fn stack(&self, id: StackId) -> Option<Cow<'_, Stack>> {
        self.stacks.get(&id).map(|kept| Cow::Borrowed(&kept.stack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a process is reported for the last time only by a snapshot whose sums were read after its end.
    #[test]
    fn ended_processes_are_final_once_their_sums_were_read() {
        let mut process = Process::default();
        assert!(!process.is_final(10, 20, true), "it has not ended");
        process.end(15);
        assert!(!process.is_final(14, 20, true), "it ended while the snapshot was made");
        assert!(process.is_final(15, 20, true));
        assert!(!process.is_final(16, 20, false) && process.is_final(16, 15 + TO_NAME_NS, false), "names take time");
        process.end(100);
        assert!(process.is_final(16, 20, true), "it ends once");
    }
}
