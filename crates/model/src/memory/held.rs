//! The memory of all processes as events, for recordings that do not contain the allocations: windows.

use std::collections::BTreeMap;

use super::moment::{Amount, DeviceMemory, GpuMemory, Moment, Use};
use crate::event::{Event, HeldMemory, MemoryHolder, StackId};

impl GpuMemory {
    /// Returns it as events.
    pub fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (&(process, device), memory) in &self.devices {
            let (time, peak_time) = (memory.end.time, memory.peak.time);
            let &DeviceMemory { most_tensor_bytes, most_held_bytes, .. } = memory;
            let held = HeldMemory { process, device, time, peak_time, most_tensor_bytes, most_held_bytes };
            events.push(Event::HeldMemory(held));
            let mut holders = BTreeMap::<(Use, StackId), (Amount, Amount)>::new();
            for &(what, stack, amount) in &memory.end.holders {
                holders.entry((what, stack)).or_default().0 = amount;
            }
            for &(what, stack, amount) in &memory.peak.holders {
                holders.entry((what, stack)).or_default().1 = amount;
            }
            let holder = |((what, stack), (end, peak)): ((Use, StackId), (Amount, Amount))| {
                let (bytes, count, peak_bytes, peak_count) = (end.bytes, end.count, peak.bytes, peak.count);
                Event::MemoryHolder(MemoryHolder { process, device, what, stack, bytes, count, peak_bytes, peak_count })
            };
            events.extend(holders.into_iter().map(holder));
        }
        events
    }

    /// Adds such an event.
    pub(super) fn held(&mut self, held: &HeldMemory) {
        let memory = self.devices.entry((held.process, held.device)).or_default();
        (memory.end.time, memory.peak.time) = (held.time, held.peak_time);
        (memory.most_tensor_bytes, memory.most_held_bytes) = (held.most_tensor_bytes, held.most_held_bytes);
    }

    /// Adds such an event.
    pub(super) fn holder(&mut self, holder: &MemoryHolder) {
        let &MemoryHolder { process, device, what, stack, bytes, count, peak_bytes, peak_count } = holder;
        let memory = self.devices.entry((process, device)).or_default();
        memory.end.add(what, stack, Amount { bytes, count });
        memory.peak.add(what, stack, Amount { bytes: peak_bytes, count: peak_count });
    }

    /// Sorts what was added.
    pub(super) fn sort(&mut self) {
        self.devices.values_mut().for_each(|memory| {
            memory.peak.sort();
            memory.end.sort();
        });
    }
}

impl Moment {
    fn add(&mut self, what: Use, stack: StackId, amount: Amount) {
        if amount.bytes > 0 {
            let sum = &mut self.bytes[what as usize];
            *sum = sum.saturating_add(amount.bytes);
            self.holders.push((what, stack, amount));
        }
    }

    /// Largest first.
    pub(super) fn sort(&mut self) {
        self.holders.sort_by_key(|&(what, stack, amount)| (std::cmp::Reverse(amount.bytes), what, stack));
    }
}
