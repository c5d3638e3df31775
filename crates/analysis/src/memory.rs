//! Who holds GPU memory at its peak and at the end, by line of user code. `model::memory` explains what is counted.

use std::collections::BTreeMap;

use model::{
    event::ProcessId,
    memory::{self, Use},
    profile::Profile,
};
use serde::Serialize;

use crate::{
    names,
    user_code::{Place, UserCode},
};

/// The maximum number of lines that are listed; the rest is added up.
const MAX_LINES: usize = 100;

/// The memory of one process on one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// The GPU's number as shown.
    pub label: String,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub process: String,
    /// When most bytes were in use.
    pub peak: Moment,
    /// At the end.
    pub end: Moment,
    /// The most bytes of tensors at one time, as `torch.cuda.max_memory_allocated()` reports them.
    pub most_tensor_bytes: u64,
    /// The most bytes taken from the driver at one time.
    pub most_held_bytes: u64,
}

/// Who held memory at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// When, since the start of the recording.
    pub at_ns: u64,
    /// Tensors and other allocations.
    pub in_use_bytes: u64,
    /// Tensors in PyTorch's caching allocator.
    pub tensor_bytes: u64,
    /// What the caching allocator keeps although it is free.
    pub cached_bytes: u64,
    /// Allocations of other libraries and of the program.
    pub other_bytes: u64,
    /// By line, largest first. The lines of each use add up to its bytes.
    pub lines: Vec<MemoryLine>,
}

/// The memory of one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryLine {
    /// What it is used for.
    #[serde(rename = "use")]
    pub what: Use,
    /// The innermost line of user code; absent for the rest beyond the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
}

/// Returns the memory of each process on each GPU, the largest peak first.
pub fn of(profile: &Profile, code: &UserCode<'_>) -> Vec<DeviceMemory> {
    let start = profile.start.as_ref().map_or(0, |start| start.time);
    let used = profile.memory.devices.iter().filter(|(_, memory)| memory.peak.in_use() > 0);
    let mut all: Vec<DeviceMemory> = used
        .map(|(&(process, index), memory)| DeviceMemory {
            label: label(profile, process, index),
            pid: profile.processes.get(&process).map_or(0, |info| info.pid),
            process: names::process(profile, process),
            peak: moment(code, process, &memory.peak, start),
            end: moment(code, process, &memory.end, start),
            most_tensor_bytes: memory.most_tensor_bytes,
            most_held_bytes: memory.most_held_bytes,
        })
        .collect();
    all.sort_by_key(|memory| std::cmp::Reverse(memory.peak.in_use_bytes));
    all
}

/// Returns the machine's number of a process's device as shown; without the injected library, the process's own.
pub fn label(profile: &Profile, process: ProcessId, index: u32) -> String {
    device(profile, process, index).map_or_else(|| index.to_string(), |number| profile.device_label(number).to_owned())
}

/// Returns the machine's number of a process's device, if it is known.
pub fn device(profile: &Profile, process: ProcessId, index: u32) -> Option<u32> {
    let session = profile.sessions.iter().find(|(_, info)| info.process == process).map(|(id, _)| *id)?;
    profile.device_numbers.get(&(session, index)).copied()
}

fn moment(code: &UserCode<'_>, process: ProcessId, moment: &memory::Moment, start: u64) -> Moment {
    let mut sums: BTreeMap<(Use, Place), memory::Amount> = BTreeMap::new();
    for (what, stack, amount) in &moment.holders {
        let sum = sums.entry((*what, code.place(process, *stack))).or_default();
        sum.bytes = sum.bytes.saturating_add(amount.bytes);
        sum.count = sum.count.saturating_add(amount.count);
    }
    let line = |((what, place), amount): ((Use, Place), memory::Amount)| MemoryLine {
        what,
        place: Some(place),
        bytes: amount.bytes,
        count: amount.count,
    };
    let mut lines: Vec<MemoryLine> = sums.into_iter().map(line).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.bytes));
    let rest = lines.split_off(lines.len().min(MAX_LINES));
    for what in Use::ALL {
        let of = || rest.iter().filter(|line| line.what == what);
        let (bytes, count): (u64, u64) = (of().map(|line| line.bytes).sum(), of().map(|line| line.count).sum());
        if count > 0 {
            lines.push(MemoryLine { what, place: None, bytes, count });
        }
    }
    Moment {
        at_ns: moment.time.saturating_sub(start),
        in_use_bytes: moment.in_use(),
        tensor_bytes: moment.of(Use::Tensor),
        cached_bytes: moment.of(Use::Cached),
        other_bytes: moment.of(Use::Other),
        lines,
    }
}
