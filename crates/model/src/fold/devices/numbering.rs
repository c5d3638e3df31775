//! Numbers devices.
//!
//! 1. As the machine does: the driver lists its GPUs in `/proc/driver/nvidia/gpus` by PCI address, which is the order
//!    of `nvidia-smi`.
//! 2. Without that list, in the order of the PCI addresses, or else of the UUIDs, of the recorded GPUs; the summary
//!    says which.
//!
//! Any process of the user can report invented GPUs. Those that the machine does not list, and those of processes that
//! used no GPU, get numbers above all others, and only a limited number of them is accepted.

use std::collections::{BTreeMap, BTreeSet};

use super::slot::{Identity, Slot};
use crate::{event::Uuid, profile::Numbering};

/// Larger indices are not those of a real machine.
const MAX_MACHINE: u32 = 1024;

/// Returns the number and the label of each slot. Instances of a GPU, and devices without a UUID beside others that have
/// one, have numbers above those of all GPUs.
pub(super) fn number(slots: &[Slot]) -> (Numbering, Vec<(u32, String)>) {
    let plain = |slot: &Slot| match slot.identity {
        Identity::Plain(index) => (index, index.to_string()),
        Identity::Known(_) => (0, String::new()),
    };
    if slots.iter().all(|slot| slot.uuid().is_none()) {
        return (Numbering::Process, slots.iter().map(plain).collect());
    }
    let (numbering, gpus) = number_gpus(slots);
    let mut next = gpus.values().max().map_or(0, |most| most.saturating_add(1));
    let mut names = vec![(0, String::new()); slots.len()];
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|at| (gpus.get(&slots[*at].gpu).copied().unwrap_or(u32::MAX), slots[*at].identity));
    let mut instances: BTreeMap<Uuid, u32> = BTreeMap::new();
    for at in order {
        let slot = &slots[at];
        let gpu = gpus.get(&slot.gpu).copied();
        names[at] = match (slot.identity, gpu) {
            (Identity::Known(_), Some(gpu)) if !slot.is_instance() => (gpu, gpu.to_string()),
            (Identity::Known(_), Some(gpu)) => {
                let instance = instances.entry(slot.gpu).or_default();
                *instance += 1;
                next += 1;
                (next - 1, format!("{gpu}:{}", *instance - 1))
            }
            (Identity::Plain(index), _) => {
                next += 1;
                (next - 1, format!("?{index}"))
            }
            (Identity::Known(_), None) => (0, String::new()),
        };
    }
    (numbering, names)
}

/// Numbers GPUs by UUID: as the machine does, if it lists any of them, otherwise in the order of their addresses. Those
/// that the machine does not list, and those of processes that did not use any GPU, come last: any process can invent
/// some.
fn number_gpus(slots: &[Slot]) -> (Numbering, BTreeMap<Uuid, u32>) {
    let mut gpus: BTreeMap<Uuid, Gpu> = BTreeMap::new();
    for slot in slots.iter().filter(|slot| slot.uuid().is_some()) {
        let gpu = gpus.entry(slot.gpu).or_insert(Gpu { machine_index: None, pci: u64::MAX, used: false });
        gpu.machine_index = gpu.machine_index.or(slot.machine_index.filter(|index| *index < MAX_MACHINE));
        gpu.pci = gpu.pci.min(slot.pci);
        gpu.used |= slot.used;
    }
    let mut numbers = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (uuid, gpu) in &gpus {
        if let Some(index) = gpu.machine_index.filter(|index| taken.insert(*index)) {
            numbers.insert(*uuid, index);
        }
    }
    let by_pci = gpus.values().filter(|gpu| gpu.used).all(|gpu| gpu.pci != u64::MAX);
    let numbering = match by_pci {
        _ if !numbers.is_empty() => Numbering::Machine,
        true => Numbering::Pci,
        false => Numbering::Uuid,
    };
    let mut others: Vec<(Uuid, Gpu)> = gpus.into_iter().filter(|(uuid, _)| !numbers.contains_key(uuid)).collect();
    others.sort_by_key(|(uuid, gpu)| (!gpu.used, if by_pci { gpu.pci } else { 0 }, *uuid));
    let next = taken.last().map_or(0, |most| most + 1);
    numbers.extend(others.into_iter().map(|(uuid, _)| uuid).zip(next..));
    (numbering, numbers)
}

/// What is known about a GPU, from all its instances.
struct Gpu {
    machine_index: Option<u32>,
    pci: u64,
    used: bool,
}
