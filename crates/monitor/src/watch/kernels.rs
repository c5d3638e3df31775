//! Launches by kernel, with the kernels' names.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bpf::{Recorder, calls::KernelSum};
use collect::calls::{handles::MOST_SEEN, objects::Question};
use cuda::calls::KernelRef;
use model::event::{Mapping, ProcessId};

use super::{namer::Namer, state::State};
use crate::snapshot::{Kernel, Process};

/// The maximum number of kernels of one process in a snapshot.
const MAX_KERNELS: usize = 1024;
/// The maximum number of handles of one process whose names are requested.
const MAX_REQUESTED: usize = 1 << 16;

/// Adds launches to the snapshot of a process. Kernels with the same name are merged.
pub fn add(process: &mut Process, id: ProcessId, sums: &[&KernelSum], state: &mut State, namer: &Namer) {
    let mut by_name = HashMap::<Arc<str>, Kernel>::new();
    let (mut nameless, mut handles) = (Vec::new(), Vec::new());
    for sum in sums {
        // Launches for which the map had no room.
        if sum.address == 0 {
            process.other_launches += sum.count;
            continue;
        }
        let reference = if sum.handle { KernelRef::Handle(sum.address) } else { KernelRef::HostStub(sum.address) };
        let name = state.kernel_name(id, reference);
        // The runtime also accepts a handle in place of a host function, which is code.
        let is_handle = sum.handle || state.code_at(id, sum.address).is_none();
        let pending = match &name {
            Some(_) => false,
            None if state.is_awaited(id, sum.address) => true,
            None if is_handle && is_unrequested(id, sum.address, state) => {
                handles.push(sum.address);
                true
            }
            None if !is_handle && state.is_unrequested(id, sum.address) => {
                nameless.push(sum.address);
                true
            }
            None => false,
        };
        if pending {
            process.unnamed_launches += sum.count;
            process.unlisted.push((sum.address, sum.count));
            continue;
        }
        let name = name.unwrap_or_else(|| unknown(state.code_at(id, sum.address), sum.address));
        let kernel = by_name.entry(name.clone()).or_insert_with(|| Kernel { name, ..Kernel::default() });
        kernel.launches += sum.count;
        kernel.by_address.push((sum.address, sum.count));
        (kernel.grid, kernel.block) = (sum.grid, sum.block);
    }
    request(id, nameless, state, namer);
    request_handles(id, handles, sums, state, namer);
    process.other_launches += state.processes.get(&id).map_or(0, |known| known.evicted_launches);
    process.kernels = by_name.into_values().collect();
    process.kernels.sort_by(|a, b| b.launches.cmp(&a.launches).then_with(|| a.name.cmp(&b.name)));
    for other in process.kernels.drain(MAX_KERNELS.min(process.kernels.len())..) {
        process.other_launches += other.launches;
        process.unlisted.extend(other.by_address);
    }
}

/// Returns what a kernel without a name is called: its host function's place in its file, or its handle. Each has its own
/// counter, which another kernel never joins.
fn unknown(code: Option<&Mapping>, address: u64) -> Arc<str> {
    match code {
        Some(mapping) => {
            let file = mapping.path.rsplit('/').next().unwrap_or_default();
            format!("[unknown kernel {file}+{:#x}]", address - mapping.start + mapping.offset).into()
        }
        None => format!("[unknown kernel {address:#x}]").into(),
    }
}

/// Requests the names of host functions that were not requested before.
fn request(id: ProcessId, mut stubs: Vec<u64>, state: &mut State, namer: &Namer) {
    let Some(known) = state.processes.get(&id) else { return };
    stubs.retain(|stub| !known.requested_stubs.contains(stub));
    if !stubs.is_empty()
        && namer.request_stubs(id, &stubs, state)
        && let Some(known) = state.processes.get_mut(&id)
    {
        known.awaited_stubs.extend(&stubs);
        known.requested_stubs.extend(stubs);
    }
}

fn is_unrequested(id: ProcessId, handle: u64, state: &State) -> bool {
    let room = |requested: &HashSet<u64>| requested.len() < MAX_REQUESTED && !requested.contains(&handle);
    state.processes.get(&id).is_some_and(|known| room(&known.requested_handles))
}

/// Requests the names of handles that were not requested before: a handle whose kernel has been exported as unknown stays so,
/// because its counters must not decrease.
fn request_handles(id: ProcessId, mut unnamed: Vec<u64>, sums: &[&KernelSum], state: &mut State, namer: &Namer) {
    unnamed.truncate(MOST_SEEN);
    let Some(known) = state.processes.get_mut(&id).filter(|_| !unnamed.is_empty()) else { return };
    let launched = sums.iter().filter(|sum| sum.handle && sum.address != 0).map(|sum| sum.address);
    let seen = state.names.seen(id, unnamed.iter().copied().chain(launched), MOST_SEEN);
    if namer.request_handles(Question { pid: known.pid, image: id, seen, unnamed: unnamed.clone() }) {
        known.awaited_handles.extend(&unnamed);
        known.requested_handles.extend(unnamed);
    }
}

/// If the kernel's map is nearly full, moves the kernels with the fewest launches to the "other" entry of their process
/// and returns how many. Kernels launched since `before` are kept, so that no launch is lost in between.
pub fn evict(recorder: &Recorder, before: &HashMap<(u32, u64), u64>, room: u64, state: &mut State) -> u64 {
    let mut sums = recorder.kernel_sums();
    if sums.len() as u64 * 4 <= room * 3 {
        return 0;
    }
    let keep = room as usize / 2;
    sums.retain(|sum| {
        sum.address != 0 && before.get(&(sum.image, sum.address)).is_some_and(|count| *count == sum.count)
    });
    sums.sort_by_key(|sum| sum.count);
    sums.truncate((room as usize * 3 / 4).saturating_sub(keep));
    for sum in &sums {
        let count = recorder.forget_kernel(sum);
        if let Some(process) = state.processes.get_mut(&ProcessId(sum.image)) {
            process.evicted_launches += count;
        }
    }
    sums.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that kernels without a name are distinguished by the place of their host function, which is the same in every run,
    /// or by their handle.
    #[test]
    fn unknown_kernels_are_named_by_their_place() {
        let mapping = Mapping {
            process: ProcessId(1),
            time: 0,
            start: 0x7000,
            end: 0x9000,
            offset: 0x1000,
            path: "/opt/app/train".into(),
            build_id: Vec::new(),
        };
        assert_eq!(&*unknown(Some(&mapping), 0x7139), "[unknown kernel train+0x1139]");
        assert_eq!(&*unknown(None, 0x5588_0010), "[unknown kernel 0x55880010]");
    }
}
