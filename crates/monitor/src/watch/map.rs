//! Builds the memory map of one process, address by address.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use model::event::{ProcessId, StackId};

use super::{choice, main_loop::Monitor, suspects};
use crate::map::{Allocation, Map};

/// The maximum number of rows of a map; beyond it the smallest allocations are left out.
const MAX_ROWS: usize = 10_000;

impl Monitor {
    /// Returns the live allocations of a process; `None` if it is not watched.
    pub fn map(&mut self, pid: u32) -> Option<Map> {
        let known = self.collector.sink.processes.iter().find(|(_, known)| known.pid == pid && !known.ended);
        let (id, comm, user) = known.map(|(id, known)| (*id, known.comm.clone(), known.user.clone()))?;
        let mut all = self.collector.recorder.allocations();
        all.retain(|allocation| ProcessId(allocation.image) == id);
        all.sort_by_key(|allocation| Reverse(allocation.bytes));
        let left_out = all.split_off(MAX_ROWS.min(all.len()));
        all.sort_by_key(|allocation| allocation.address);

        let stack_of: BTreeMap<(u64, u64), StackId> = all
            .iter()
            .map(|allocation| {
                let bpf::calls::Allocation { image, stack, python, time, .. } = *allocation;
                let whole = self.collector.whole_stack(image, stack, python, time);
                ((stack, python), self.collector.sink.canonical(whole))
            })
            .collect();
        let stacks: BTreeSet<StackId> = stack_of.values().copied().collect();
        let state = &mut self.collector.sink;
        suspects::request(id, stacks.iter().copied(), state, &self.namer);
        let known = state.processes.get(&id)?;
        let named = |stack: &StackId| known.stack_names.get(stack).cloned();
        let now = bpf::now();
        let allocations = all.iter().map(|allocation| Allocation {
            address: allocation.address,
            bytes: allocation.bytes,
            space: choice::numbered(allocation.space),
            age: Duration::from_nanos(now.saturating_sub(allocation.time)),
            function: state.functions.get(&allocation.function).map_or_else(|| "".into(), |f| f.name.clone()),
            stack: stack_of.get(&(allocation.stack, allocation.python)).and_then(named).unwrap_or_else(|| Arc::new([])),
        });
        Some(Map {
            pid,
            comm,
            user,
            allocations: allocations.collect(),
            left_out: (left_out.len() as u64, left_out.iter().map(|allocation| allocation.bytes).sum()),
            // Including stacks that have not arrived from the kernel yet.
            incomplete: stacks.iter().any(|stack| stack.0 != 0 && named(stack).is_none()),
        })
    }
}
