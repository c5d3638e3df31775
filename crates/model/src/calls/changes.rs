//! What each single call did to the memory of its process, by the same accounting as the sums.

use std::collections::BTreeMap;

use cuda::calls::{Role, Space};
use rustc_hash::FxHashMap;

use super::{facts::facts, sums::Calls};
use crate::event::{Call, Function, FunctionId, ProcessId};

/// Reads the calls of a trace again, process by process.
#[derive(Debug)]
pub struct MemoryChanges<'a> {
    functions: &'a BTreeMap<FunctionId, Function>,
    processes: FxHashMap<ProcessId, Calls>,
}

/// A change of the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryChange {
    /// The kind of change.
    pub operation: MemoryOperation,
    /// Its address or handle; none if the call does not report it or if there is more than one allocation.
    pub address: Option<u64>,
    /// Number of bytes; none if the allocation was not seen.
    pub bytes: Option<u64>,
    /// The kind of memory.
    pub space: Space,
    /// Live memory of this kind in the process after the change.
    pub live_bytes: u64,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOperation {
    /// It was allocated.
    Alloc,
    /// It was freed.
    Free,
    /// Everything that belonged to a context or device was released with it.
    Release,
}

impl<'a> MemoryChanges<'a> {
    /// Starts with nothing allocated.
    pub fn new(functions: &'a BTreeMap<FunctionId, Function>) -> Self {
        Self { functions, processes: FxHashMap::default() }
    }

    /// Returns what a call changed.
    pub fn call(&mut self, call: &Call) -> Vec<MemoryChange> {
        let Some(function) = self.functions.get(&call.function) else { return Vec::new() };
        let Some(known) = cuda::call(&function.name) else { return Vec::new() };
        if !matches!(known.role, Role::Alloc | Role::Free | Role::Context) {
            return Vec::new();
        }
        let account = self.processes.entry(call.process).or_insert_with(|| {
            let mut calls = Calls::default();
            self.functions.values().for_each(|function| calls.function(function));
            calls
        });
        let before = account.memory.clone();
        account.call(call);
        let mut changes = Vec::new();
        for (&space, after) in &account.memory {
            let before = before.get(&space).copied().unwrap_or_default();
            let gone = (after.live < before.live).then(|| before.live_bytes.saturating_sub(after.live_bytes));
            let (operation, address, bytes) = if after.allocations > before.allocations {
                let address = facts(function, call).and_then(|facts| facts.address);
                (MemoryOperation::Alloc, address, Some(after.bytes.saturating_sub(before.bytes)))
            } else if after.frees > before.frees {
                (MemoryOperation::Free, call.words.first().copied(), gone)
            } else if gone.is_some() && known.role == Role::Context {
                (MemoryOperation::Release, None, gone)
            } else {
                continue;
            };
            changes.push(MemoryChange { operation, address, bytes, space, live_bytes: after.live_bytes });
        }
        changes
    }
}
