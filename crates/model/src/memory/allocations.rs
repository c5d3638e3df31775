//! Follows the allocations of all processes.

use cuda::{
    calls::{Role, Space},
    memory::Action,
};
use rustc_hash::FxHashMap;

use super::{
    moment::{Counts, GpuMemory},
    process::{Holding, Process},
    sums::Sums,
};
use crate::{
    calls::{Accounts, Allocated, Change, Place, Spaces, captured, is_error, known},
    event::{Call, Event, Function, FunctionId, ProcessId, Shutdown, StackId, Tensor, TensorFreed},
};

/// The most tensors that are followed at a time: about 400 MiB.
const MOST_TENSORS: usize = 1 << 22;

/// The highest number of a device.
const MOST_DEVICES: u32 = 255;

/// The result of CUDA's functions, in both APIs, where there is too little memory.
const OUT_OF_MEMORY: u32 = 2;

/// Returns the bytes that a call asked for, if it is an allocation of GPU memory for which there was no room. An attempt to
/// allocate in a way that the GPU does not support is none.
pub fn refused(function: &Function, call: &Call) -> Option<u64> {
    let known = known(function).filter(|known| known.action() == Some(Action::Alloc))?;
    let elsewhere = matches!(known.space?, Space::Host | Space::Registered | Space::Reserved | Space::Imported);
    let refused = !elsewhere && !call.nested && is_error(function, call.result) && call.result as u32 == OUT_OF_MEMORY;
    refused.then(|| known.facts(&captured(call)).bytes.unwrap_or(0))
}

/// The memory of all processes.
#[derive(Debug)]
pub struct Allocations {
    functions: FxHashMap<FunctionId, Function>,
    accounts: Accounts,
    /// The accounts need sums; those of single kinds are not used here.
    spaces: Spaces,
    processes: FxHashMap<ProcessId, Process>,
    tensors: usize,
    counts: Counts,
    /// What was known already when the recording began: it is a window.
    held: GpuMemory,
}

impl Default for Allocations {
    fn default() -> Self {
        Self {
            functions: FxHashMap::default(),
            accounts: Accounts::with_changes(),
            spaces: Spaces::default(),
            processes: FxHashMap::default(),
            tensors: 0,
            counts: Counts::default(),
            held: GpuMemory::default(),
        }
    }
}

impl Allocations {
    /// Adds a function of the driver or runtime.
    pub fn function(&mut self, function: &Function) {
        self.functions.insert(function.id, function.clone());
    }

    /// Adds a call that allocates, frees, or affects contexts.
    pub fn call(&mut self, call: &Call) {
        let Some(function) = self.functions.get(&call.function) else { return };
        let Some(known) = known(function) else { return };
        if call.duration().is_none() {
            return;
        }
        let failed = is_error(function, call.result);
        let (accounts, spaces) = (&mut self.accounts, &mut self.spaces);
        match (known.action(), known.space) {
            (Some(Action::Alloc), Some(space)) if !failed && !call.nested => {
                let facts = known.facts(&captured(call));
                let new = Allocated { space, address: facts.address, bytes: facts.bytes.unwrap_or(0) };
                accounts.allocated(call, &new, spaces);
            }
            (Some(Action::Free), Some(space)) if !call.nested => accounts.freed(call, space, failed, spaces),
            (Some(action), _) if known.role == Role::Context && !failed => accounts.context(call, action, spaces),
            _ => return,
        }
        let changes = self.accounts.take_changes();
        if changes.is_empty() {
            return;
        }
        let process = self.processes.entry(call.process).or_default();
        // An expandable segment consists of several parts, which are allocated and mapped one by one.
        let is_part = |change: &Change| matches!(change, Change::Began { space: Space::Physical | Space::Mapped, .. });
        if process.shut_down.is_some() {
            return;
        }
        if !changes.iter().all(is_part) {
            process.decide_fresh(call.tid, &[], None);
        }
        process.settle();
        for change in changes {
            match change {
                Change::Began { space, address, bytes, place } => {
                    let device = if let Place::Device(device) = place { device.min(MOST_DEVICES) } else { 0 };
                    let stack = call.stack.unwrap_or_default();
                    let holding = Holding::new(bytes, device, stack, call.end);
                    self.counts.allocations += u64::from(process.began(call, space, address, holding));
                }
                Change::Ended { group, address } => {
                    let missed = process.ended((group, address), call.start);
                    self.tensors = self.tensors.saturating_sub(missed);
                    self.counts.missed_frees += missed as u64;
                }
            }
        }
    }

    /// Adds a tensor.
    pub fn tensor(&mut self, tensor: &Tensor) {
        if self.has_shut_down(tensor.process) {
            return;
        }
        self.counts.tensors += 1;
        self.counts.tensor_bytes = self.counts.tensor_bytes.saturating_add(tensor.bytes);
        // Machines have far fewer devices; what is beyond comes from a corrupt recording.
        let tensor = &Tensor { device: tensor.device.min(MOST_DEVICES), ..*tensor };
        let process = self.processes.entry(tensor.process).or_default();
        if self.tensors >= MOST_TENSORS {
            self.counts.untracked += 1;
            return;
        }
        let missed = process.tensor(tensor);
        self.tensors = (self.tensors + 1).saturating_sub(missed);
        self.counts.missed_frees += missed as u64;
    }

    /// Adds the free of a tensor.
    pub fn freed(&mut self, freed: &TensorFreed) {
        if self.has_shut_down(freed.process) {
            return;
        }
        self.counts.freed += 1;
        let process = self.processes.entry(freed.process).or_default();
        process.decide_fresh(freed.tid, &[], None);
        process.settle();
        if process.free_tensor(freed.address, freed.time) {
            self.tensors = self.tensors.saturating_sub(1);
        } else {
            self.counts.unknown_frees += 1;
        }
    }

    /// Adds the end of a program: it frees everything because it ends.
    pub fn shutdown(&mut self, shutdown: &Shutdown) {
        if let Some(process) = self.processes.get_mut(&shutdown.process) {
            process.shut_down.get_or_insert(shutdown.time);
        }
    }

    fn has_shut_down(&self, process: ProcessId) -> bool {
        self.processes.get(&process).is_some_and(|process| process.shut_down.is_some())
    }

    /// Adds an event, if it is about memory.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Function(function) => self.function(function),
            Event::Call(call) => self.call(call),
            Event::Tensor(tensor) => self.tensor(tensor),
            Event::TensorFreed(freed) => self.freed(freed),
            Event::Shutdown(shutdown) => self.shutdown(shutdown),
            Event::HeldMemory(held) => self.held.held(held),
            Event::MemoryHolder(holder) => self.held.holder(holder),
            _ => {}
        }
    }

    /// Returns the most bytes that a process used on one device since the last call, and now.
    pub fn take_most(&mut self, process: ProcessId) -> u64 {
        let Some(process) = self.processes.get_mut(&process) else { return 0 };
        process.settle();
        process.devices.values_mut().map(Sums::take_most).max().unwrap_or(0)
    }

    /// Returns the memory of all processes as of now. `end` returns when a process ended; `None` if it does not count.
    pub fn memory(&self, end: impl Fn(ProcessId) -> Option<u64>) -> GpuMemory {
        let mut memory = GpuMemory { counts: self.counts, ..self.held.clone() };
        memory.sort();
        for (id, process) in &self.processes {
            let Some(end) = end(*id) else { continue };
            let end = process.shut_down.unwrap_or(end);
            let devices = process.decided().into_iter().map(|(device, sums)| ((*id, device), sums.finish(end)));
            memory.devices.extend(devices);
        }
        memory
    }

    /// Returns the stacks of all holders.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> + '_ {
        self.processes.values().flat_map(|process| process.devices.values().flat_map(Sums::stacks))
    }

    /// Forgets these processes, and stacks that hold nothing.
    pub fn forget(&mut self, gone: impl Fn(ProcessId) -> bool) {
        for (_, process) in self.processes.extract_if(|id, _| gone(*id)) {
            self.tensors = self.tensors.saturating_sub(process.tensors());
        }
        let devices = self.processes.values_mut().flat_map(|process| process.devices.values_mut());
        devices.for_each(Sums::forget_unused);
    }
}
